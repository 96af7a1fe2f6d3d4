"""How tensors lie in memory for a kernel: in place or packed, and how their copies are laid out."""
