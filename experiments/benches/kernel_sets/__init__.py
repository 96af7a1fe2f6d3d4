"""Results of the kernels suite over all of its shapes."""
