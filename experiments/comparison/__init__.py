"""Comparison of strategies under equal budgets, whose winners are timed again, with tables and figures (`gensor compare`).

The verdict over torch (FASTER, SLOWER, SAME or AMBIGUOUS) comes from `gensor_gym.measure.stats.verdict`, which `summary` calls.
"""
