"""An emulator that runs CUDA text on a CPU: headers that replace a GPU, and the backend `emulated`."""
