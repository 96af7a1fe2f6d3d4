"""Cycles of register tiles that are multiplied in tile registers (`codegen.c.amx`). Compiled."""

from __future__ import annotations

from gensor_gym.cost.cpu.groups import group_of
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.resources import rows_of
from gensor_gym.graph.tables.layout import CONVOLUTION, MAX_AXES, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import CLOCK, EXTENT, FIRST_SPATIAL, GROUPED, LANES, MMA_PEAK, STRIDE, UNITS

ROWS = 16
"""Rows of a tile register, and groups of the reduction that a step multiplies (`codegen.c.amx.steps`)."""
MOST_SUMS, MOST_PARTS = 4, 2
LOADS_PER_CYCLE = 2.0
CHAIN = 34.0
"""Cycles from one product of tiles to the next one on the same sums: measured with two sums of 14 rows on an Intel Xeon."""


@lean
def is_in_tiles(row, slot, ints, floats):  # noqa: ANN001, ANN201
    """Whether the register tiles of a program are multiplied in tile registers."""
    group = group_of(row, slot, ints)
    if floats[MMA_PEAK] == 0.0 or group < 0 or group == slot or row[CONVOLUTION] != 0 or row[TILE + slot] % ints[LANES] != 0:
        return False
    if ints[EXTENT + group] < ROWS * ints[GROUPED] or ints[STRIDE + group] != 1:
        return False
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if axis != slot and row[TILE + axis] > 1 and ints[STRIDE + MAX_AXES + axis] != 0:
            return False
    parts = _parts(row, slot, ints)
    return 0 < parts <= MOST_PARTS and parts * (row[TILE + slot] // ints[LANES]) <= MOST_SUMS


@lean
def _parts(row, slot, ints):  # noqa: ANN001, ANN202
    """Return how many tile registers hold a column of sums; 0 if rows lie along several axes."""
    along = 0
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        along += axis != slot and row[TILE + axis] > 1
    return 0 if along > 1 else (rows_of(row, slot, ints) + ROWS - 1) // ROWS


@lean
def tile_cycles(row, slot, vectors, ints, floats):  # noqa: ANN001, ANN201
    """Return the cycles of a register tile per group of reduction points: (products, loads)."""
    rows = rows_of(row, slot, ints) * 1.0
    per_cycle = floats[MMA_PEAK] / (ints[UNITS] * floats[CLOCK])
    products = 2.0 * rows * vectors * ints[LANES] * ints[GROUPED] / per_cycle
    return products, (rows + ROWS * vectors) / (ROWS * LOADS_PER_CYCLE)
