"""Searches of recorded tuning spaces: the function `tune`, annealing, policies, and the optima of other devices."""
