"""Whole networks: a dataflow graph with its weights, a plan of what is computed together, one library that runs it."""
