"""Kernels compiled in advance on a machine without a GPU: drawn, compiled and packed there, then timed on the GPU machine."""
