"""HIP of a program: the text of CUDA cores in AMD's language, and what compiles it for an AMD GPU without one."""
