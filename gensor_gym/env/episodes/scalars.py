"""The numbers of a running episode beside its row, and of the settings that the process reads, by place."""

from __future__ import annotations

LATENCY, START_LATENCY, REMAINING, STEPS, POTENTIAL = range(5)
NUM_SCALARS = 5
"""Float64 state of an episode beside its row: model latency now and at the start (of s0), steps left, steps paid for, Phi."""

MODEL_REWARD = 1
"""The reward tier is the model: the process pays R itself."""
