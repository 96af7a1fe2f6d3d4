"""Kernels for use: `gensor optimize` for one operator, `gensor export` for many."""
