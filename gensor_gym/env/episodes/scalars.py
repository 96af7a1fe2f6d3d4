"""Scalars of an episode by index, and settings of the compiled process as numbers."""

from __future__ import annotations

LATENCY, START_LATENCY, REMAINING, STEPS, POTENTIAL, BEST, PAID = range(7)
NUM_SCALARS = 7
"""Number of scalars of an episode, float64, in the order of their indices. Model latency now and of the first state; steps left;
steps that cost `step_cost`; potential Phi; seconds of the fastest evaluated program (infinite before the first) and number of
evaluated programs. The last two are for `reward="best_so_far"`."""

MODEL_REWARD = 1
"""Setting of the reward: the model is the backend, so the process pays the final reward R itself."""
GOES_ON = 1
"""Setting of `stop`: it evaluates the program, and the episode continues."""
