"""Kernels for use: one operator's found, those of many operators taken away together."""
