"""Whole networks: a dataflow graph with its weights, a plan of fused pieces, one library that runs it."""
