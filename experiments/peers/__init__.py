"""Comparisons with other compilers, each installed in its own environment. No other part of the project needs them."""
