"""Schedules of row nests on GPUs: the distribution of rows and columns over blocks and lanes, legality, cost."""
