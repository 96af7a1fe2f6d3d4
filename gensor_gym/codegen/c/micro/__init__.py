"""The micro-kernel in C: a register tile over one block of the reduction, its vectors, ends, windows and dot products."""
