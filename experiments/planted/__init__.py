"""Planted changes: whether fingerprints of tasks change where certificates do, and nowhere else."""
