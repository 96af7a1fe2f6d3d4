"""HIP kernels without tensor cores: AMD's dialect of the CUDA text, and a compiler for AMD GPUs that needs no device."""
