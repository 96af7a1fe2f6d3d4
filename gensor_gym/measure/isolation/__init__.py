"""What a worker process that runs kernels may see and do: variables, files, system calls (these two on Linux only)."""
