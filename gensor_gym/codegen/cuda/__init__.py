"""CUDA C for GPU programs: planning that all kernels share, NVRTC, tensor maps, and one package for each family of kernels."""
