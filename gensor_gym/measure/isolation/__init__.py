"""Restrictions of a worker process that runs kernels: variables, files, system calls. Files and calls only on Linux."""
