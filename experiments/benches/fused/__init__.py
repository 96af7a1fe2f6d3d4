"""Fused operators timed against torch eager, torch.compile and ONNX Runtime, each in its own process, one at a time."""
