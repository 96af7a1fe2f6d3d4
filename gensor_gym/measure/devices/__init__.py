"""Devices of a worker: CPUs and CUDA devices, their buffers, clocks and drift anchor."""
