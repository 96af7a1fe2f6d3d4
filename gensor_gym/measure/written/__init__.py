"""Kernels in C or CUDA C that an agent wrote: checks of texts, compilation with few rights, trials in new workers."""
