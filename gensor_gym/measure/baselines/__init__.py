"""Libraries timed beside our kernels: torch on CPUs and GPUs, oneDNN with prepacked weights."""
