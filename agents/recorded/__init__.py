"""Searches of recorded tuning spaces: the function `tune`, learned policies, and the best configurations of other devices."""
