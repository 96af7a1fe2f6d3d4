"""Comparisons with other systems, each in an environment of its own. None of them is needed for anything else."""
