"""Kernels on CUDA cores: copies to shared memory, loads to registers, multiply-adds, stores."""
