"""Rewrites of a network by which moves of data become reads of other kernels."""
