"""Kernels on CUDA cores: copies to shared memory, fragments, points of the reduction, stores."""
