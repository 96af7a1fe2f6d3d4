"""Whole networks compared with torch eager, Inductor and ONNX Runtime."""
