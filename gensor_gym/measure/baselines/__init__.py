"""Libraries timed next to our kernels: torch on CPUs and GPUs, oneDNN with prepacked weights."""
