"""Comparisons with other systems, each in its own environment. No other part of the project needs them."""
