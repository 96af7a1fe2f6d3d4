"""Cycles of register tiles that are multiplied in tile registers (`codegen.c.amx`). Compiled."""

from __future__ import annotations

from gensor_gym.cost.cpu.groups import group_of
from gensor_gym.cost.cpu.tiles import TASK
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.resources import rows_of
from gensor_gym.graph.tables.layout import CONVOLUTION, MAX_AXES, MAX_DIMS, PACK_A, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import (
    CLOCK,
    COEF,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    GROUPED,
    ITEM,
    LANES,
    MMA_PEAK,
    NUM_DIMS,
    STRIDE,
    UNITS,
)

ROWS = 16
"""Rows of a tile register, and groups of the reduction that a step multiplies (`codegen.c.amx.steps`)."""
MOST_SUMS, FEWEST_TAPS = 4, 3
LOADS_PER_CYCLE = 2.0
CHAIN = 34.0
"""Cycles from one product of tiles to the next one on the same sums: measured with two sums of 14 rows on an Intel Xeon."""


@lean
def is_in_tiles(row, slot, ints, floats):  # noqa: ANN001, ANN201
    """Whether the register tiles of a program are multiplied in tile registers (`codegen.c.amx.tiling`).

    `row` is from `fill_effective`.
    """
    group = group_of(row, slot, ints)
    if floats[MMA_PEAK] == 0.0 or group < 0 or group == slot or row[TILE + slot] % ints[LANES] != 0:
        return False
    length, step = ints[EXTENT + group], ROWS * ints[GROUPED]
    if row[CONVOLUTION] == 1:
        if ints[EXTENT + slot] % ints[LANES] != 0 or groups_of_row(row, ints) == 0:
            return False
    elif length < step or ints[STRIDE + group] != 1:
        return False
    elif ints[ITEM] == 1 and row[PACK_A] == 0 and length % step != 0:
        return False
    parts, last = 1, 1
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if axis != slot and row[TILE + axis] > 1:
            if ints[STRIDE + MAX_AXES + axis] != 0:
                return False
            parts, last = parts * last, row[TILE + axis]
    pieces = (last + ROWS - 1) // ROWS
    return parts * pieces * (row[TILE + slot] // ints[LANES]) <= MOST_SUMS and (pieces <= 2 or last % pieces == 0)


@lean
def groups_of_row(row, ints):  # noqa: ANN001, ANN201
    """Return how many groups of the reduction a row of the scalar operand's tile holds; 0 if it holds none.

    If channels do not fill it, it holds a group of channels for each tap of a row of the window.
    """
    if row[CONVOLUTION] != 1 or ints[EXTENT + SPATIAL_SLOTS] % (ROWS * ints[GROUPED]) == 0:
        return ROWS
    pixels, filters = COEF + (ints[NUM_DIMS] - 1) * MAX_AXES, COEF + (MAX_DIMS + ints[NUM_DIMS + 1] - 1) * MAX_AXES
    taps, found = 0, -1
    for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
        if axis >= SPATIAL_SLOTS and ints[pixels + axis] != 0:
            taps, found = taps + 1, axis
        elif ints[filters + axis] != 0:
            return 0
    if taps != 1 or found == SPATIAL_SLOTS or ints[pixels + found] != 1 or ints[filters + found] != 1:
        return 0
    extent = ints[EXTENT + found]
    cut = row[TILE + MAX_AXES + found] < extent or row[TILE + TASK * MAX_AXES + found] < extent
    return 0 if cut or extent < FEWEST_TAPS or extent > ROWS else extent


@lean
def tile_cycles(row, slot, vectors, ints, floats):  # noqa: ANN001, ANN201
    """Return the cycles of a register tile per group of reduction points: (products, loads)."""
    rows, groups = rows_of(row, slot, ints) * 1.0, groups_of_row(row, ints) * 1.0
    per_cycle = floats[MMA_PEAK] / (ints[UNITS] * floats[CLOCK])
    products = 2.0 * rows * vectors * ints[LANES] * ints[GROUPED] / per_cycle * ROWS / groups
    return products, (rows / groups + vectors) / LOADS_PER_CYCLE
