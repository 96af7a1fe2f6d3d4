"""Layouts in memory of a kernel's tensors: in place or packed."""
