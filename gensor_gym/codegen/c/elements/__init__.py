"""C helpers for elements whose type in memory or in the epilogue differs from the type of the accumulators."""
