"""Whole networks: a dataflow graph with its weights, a plan that groups nodes into kernels, and one library that runs them."""
