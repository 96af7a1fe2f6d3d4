"""Seconds that stores of quantised pixels take, which the cost model leaves out; they depend on the register tile.

A convolution's lanes are channels, and a channel's pixels are adjacent in memory. The pixels of a register tile's row are stored
in runs of up to sixteen, with one store for 1, 2, 4, 8 or 16 of them and two for other numbers (`codegen.c.micro.quads`).
Residuals are loaded in the same way. On one core of a Zen 4, a vector of results takes 6 cycles with runs of 8 or 16 pixels, 8
with 14, 10 with 7, 13 with 2, and 19 or more with single pixels: 4.3 and about one for each store.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.tables.layout import CONVOLUTION, SPATIAL_SLOTS, TILE
from gensor_gym.operators.images import IMAGES, order_of

RUN = 16
"""Largest number of pixels that are stored at once."""
ALONE = 2.0
"""Stores that one pixel of a channel counts for if its neighbours are not in the register tile: it goes through memory."""


def stores_pixels(graph: ConstructionGraph) -> bool:
    """Return whether some programs of a graph store int8 pixels, so that `store_seconds` is not 0."""
    op = graph.operator
    is_image = op.name == "conv2d" and order_of(op, "result") == IMAGES[0]
    return graph.hardware.kind == "cpu" and op.output.dtype == "int8" and is_image


def store_seconds(rows: np.ndarray, graph: ConstructionGraph) -> np.ndarray:
    """Return the seconds that encoded programs [P, ROW] take to store int8 pixels and to load int8 residuals, float64 [P].

    They are 0 for other results, for other lanes than channels, and on a GPU.
    """
    if not stores_pixels(graph):
        return np.zeros(len(rows))
    op, machine = graph.operator, graph.hardware
    pixels = np.minimum(rows[:, TILE + SPATIAL_SLOTS - 1], op.extents[op.spatial[-1]])
    times = 1 + sum(stage.access is not None and stage.access.tensor.dtype == "int8" for stage in op.epilogue)
    cycles = times * op.output.size * np.array([stores_of(int(one)) for one in pixels]) / pixels
    return np.where(rows[:, CONVOLUTION] == 1, cycles / (machine.clock * machine.units), 0.0)


def stores_of(pixels: int) -> float:
    """Return the number of stores of a line of adjacent pixels of one channel."""
    if pixels == 1:
        return ALONE
    whole, rest = divmod(pixels, RUN)
    return float(whole + ((1 if rest & (rest - 1) == 0 else 2) if rest else 0))
