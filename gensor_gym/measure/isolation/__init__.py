"""Restrictions of a worker process that runs kernels: variables, files, system calls (the last two only on Linux)."""
