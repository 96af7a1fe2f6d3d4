"""Whole networks: a dataflow graph with its weights, a plan that groups nodes into kernels, one library that runs it."""
