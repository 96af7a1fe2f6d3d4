"""The tiles of a program on a GPU: what of every read a block takes, and how that lies in shared memory."""
