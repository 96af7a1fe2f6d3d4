"""Networks on a GPU: the kernels of a plan in one block of memory, launched as one CUDA graph or run by the emulator."""
