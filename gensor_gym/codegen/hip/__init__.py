"""HIP of a program: the text of CUDA cores in AMD's language, and a compiler for AMD GPUs that needs no device."""
