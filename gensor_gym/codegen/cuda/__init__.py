"""CUDA C for GPU programs: shared planning code, NVRTC, tensor maps, and one package for each family of kernels."""
