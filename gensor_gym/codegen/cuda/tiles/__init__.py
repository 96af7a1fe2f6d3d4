"""The tiles of a program on a GPU: a block's part of every read, and its layout in shared memory."""
