"""Fused operators compared with torch eager, torch.compile and ONNX Runtime, alternating, each in its own process."""
