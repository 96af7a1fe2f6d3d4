"""Restrictions of a worker process that runs kernels: environment variables, files, system calls.

Files and system calls are restricted only on Linux.
"""
