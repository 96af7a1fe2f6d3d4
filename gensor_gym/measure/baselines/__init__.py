"""Libraries timed for comparison with generated kernels: torch on CPUs and GPUs, oneDNN with prepacked weights."""
