"""Generator of the micro-kernel in C, which computes a register tile over one block of the reduction."""
