"""The tiles of a program on a GPU: the part of every input that a block reads in a step, and its layout in shared memory."""
