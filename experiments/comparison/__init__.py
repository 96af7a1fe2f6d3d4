"""`experiments.compare`: strategies under equal budgets, their winners timed again, tables and figures.

The verdict over torch (FASTER, SLOWER, SAME or AMBIGUOUS) comes from `gensor_gym.measure.stats.verdict`, which `summary` calls.
"""
