"""Helpers in C for elements whose type in memory, or in the epilogue, is not that of the accumulators."""
