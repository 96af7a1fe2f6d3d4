"""A policy of columns by the model, before a GPU is asked: how fast its programs are, and which kinds it writes at all."""
