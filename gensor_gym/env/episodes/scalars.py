"""Indices of an episode's numbers (next to its row) and of the settings that the process reads."""

from __future__ import annotations

LATENCY, START_LATENCY, REMAINING, STEPS, POTENTIAL, BEST, PAID = range(7)
NUM_SCALARS = 7
"""Number of float64 values of an episode next to its row.

Model latency now and at the start (of s0), steps left, steps paid for, Phi; with `reward="best_so_far"` seconds of the fastest
evaluated program (infinite before the first) and the number of evaluated programs.
"""

MODEL_REWARD = 1
"""The reward tier is the model: the process pays R itself."""
GOES_ON = 1
"""The episode continues after `stop`, which evaluates the program."""
