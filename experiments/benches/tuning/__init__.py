"""Benchmark of network searches: the seconds until a network is nearly as fast as at the end of the search."""
