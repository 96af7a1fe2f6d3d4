"""Indices of an episode's scalars, and values of settings that the compiled process reads."""

from __future__ import annotations

LATENCY, START_LATENCY, REMAINING, STEPS, POTENTIAL, BEST, PAID = range(7)
NUM_SCALARS = 7
"""Number of scalars of an episode, float64, in the order of their indices.

Model latency now and at the start (of s0); steps left; steps that cost `step_cost`; Phi; seconds of the fastest evaluated program
(infinite before the first) and number of evaluated programs, both for `reward="best_so_far"`.
"""

MODEL_REWARD = 1
"""Value of a setting: the backend is the model, so the process pays R itself."""
GOES_ON = 1
"""Value of a setting: the episode continues after `stop`, which evaluates the program."""
