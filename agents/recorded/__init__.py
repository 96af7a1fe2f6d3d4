"""Searches of recorded tuning spaces: the front door, annealing, policies, and what was best on other devices."""
