"""The numbers of a running episode beside its row, and of the settings that the process reads, by place."""

from __future__ import annotations

LATENCY, START_LATENCY, REMAINING, STEPS, POTENTIAL, BEST, PAID = range(7)
NUM_SCALARS = 7
"""Float64 state of an episode beside its row: model latency now and at the start (of s0), steps left, steps paid for, Phi; where
the best so far counts, seconds of the fastest program paid for, infinite before there is one, and how many were paid for."""

MODEL_REWARD = 1
"""The reward tier is the model: the process pays R itself."""
GOES_ON = 1
"""An episode goes on after `stop`, which pays for the program."""
