"""Networks on a GPU: a plan's kernels in one block of memory, launched as one CUDA graph or run by the emulator."""
