"""Restrictions of a worker process that runs kernels: environment variables, files, system calls.

The latter two only on Linux.
"""
