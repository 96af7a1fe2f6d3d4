"""What the kernels suite says over all of its shapes."""
