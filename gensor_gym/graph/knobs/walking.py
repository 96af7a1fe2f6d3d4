"""Knobs of a CPU's micro-kernels: which operand's packed panel stays in L1, and the distance of prefetches."""

from __future__ import annotations

from gensor_gym.graph.knobs.knob import Knob
from gensor_gym.graph.tables.layout import LOOP_ORDER, PREFETCH

KNOBS = (
    Knob(
        place=LOOP_ORDER, name="loop_order", kind="cpu", values=(0, 1),
        doc="0, 1: whose panel stays in L1",
        cost="which operand's panel stays in L1: 0 keeps the vector operand's, 1 the other's",
        of_operands=True,
    ),
    Knob(
        place=PREFETCH, name="prefetch", kind="cpu", values=(0, 4, 8, 16),
        doc="0, 4, 8, 16 points of the reduction ahead",
        cost="instructions; steps of the reduction ahead",
        is_useful=lambda op, hardware, points: bool(op.reduce),
    ),
)  # fmt: skip
