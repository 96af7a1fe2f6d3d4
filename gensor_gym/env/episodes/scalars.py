"""Indices of the numbers that the decision process keeps for each episode, and settings as numbers."""

from __future__ import annotations

LATENCY, START_LATENCY, REMAINING, STEPS, POTENTIAL, BEST, PAID = range(7)
NUM_SCALARS = 7
"""Number of scalars that the process keeps for each episode, as float64. In the order of their indices: model's time now and of
the first state, in seconds; steps left; steps that cost `step_cost`; potential Phi; seconds of the fastest evaluated program
(infinite before the first) and number of evaluated programs. The last two are for `reward="best_so_far"`."""

MODEL_REWARD = 1
"""Value of a setting if the model is the backend: the compiled process pays the final reward R itself."""
GOES_ON = 1
"""Value of a setting if the action `stop` evaluates the program and the episode continues."""
