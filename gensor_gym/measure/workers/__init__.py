"""Worker processes and pools: compile, verify and time kernels where a crash costs one trial."""
