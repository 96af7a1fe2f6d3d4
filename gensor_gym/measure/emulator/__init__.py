"""CUDA text run on a CPU: headers that replace a GPU, and the backend `emulated`."""
