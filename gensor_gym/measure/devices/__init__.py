"""Devices on which a worker runs kernels: CPUs and CUDA devices, their buffers, clocks and drift anchor (a fixed kernel)."""
