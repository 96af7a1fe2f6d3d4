"""What a worker times on: CPUs and CUDA devices, their buffers, clocks and drift anchor."""
