"""Expected outputs of kernels: random inputs, float64 references, error bounds."""
