"""`experiments.compare`: strategies under equal budgets, their winners timed again, tables and figures.

FASTER, SLOWER, SAME or AMBIGUOUS than torch is decided in `gensor_gym.measure.stats.verdict`; `summary` asks it.
"""
