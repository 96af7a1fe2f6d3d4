"""Rewrites of a network that let kernels read data where it is, in place of nodes that move it (transposes, slices, joins)."""
