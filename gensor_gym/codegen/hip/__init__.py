"""HIP kernels without tensor cores for AMD GPUs: AMD's dialect of the CUDA text, and a compiler that needs no device."""
