"""Knob for the order in which the blocks of a GPU traverse the tiles of the output."""

from __future__ import annotations

from gensor_gym.graph.knobs.knob import Knob
from gensor_gym.graph.tables.layout import RASTER

KNOBS = (
    Knob(
        place=RASTER, name="raster", kind="gpu", values=(1, 2, 4, 8, 16),
        doc="1 .. 16: rows of blocks before the next column",
        cost="index arithmetic at the start of a block",
        is_useful=lambda op, hardware, rows: sum(op.axes[a].extent > 1 for a in op.spatial) > 1,
    ),
)  # fmt: skip
