"""CUDA text run on a CPU: the headers that stand in for a GPU, and the backend `emulated`."""
