"""Kernels in C or CUDA C that an agent wrote: checks of the text, compilation with few rights, trials in a worker of their own."""
