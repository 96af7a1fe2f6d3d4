"""Fused operators compared with torch eager, torch.compile and ONNX Runtime: alternating, each library in its own process."""
