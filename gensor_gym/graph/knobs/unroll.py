"""Knob for unrolling: how many register tiles of the reduction one iteration of its loop computes."""

from __future__ import annotations

from gensor_gym.graph.knobs.knob import CODE, REGISTERS, Knob
from gensor_gym.graph.structure import reduction_points
from gensor_gym.graph.tables.layout import UNROLL

KNOBS = (
    Knob(
        place=UNROLL, name="unroll", kind="both", values=(1, 2, 4, 8, 16),
        doc="1 .. 16",
        cost="code size, compile time",
        is_useful=lambda op, hardware, factor: reduction_points(op) > 1, raising=CODE | REGISTERS,
    ),
)  # fmt: skip
