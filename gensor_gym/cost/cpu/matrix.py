"""Cycles of register tiles that are multiplied in tile registers (`codegen.c.amx`). Compiled."""

from __future__ import annotations

from gensor_gym.cost.cpu.groups import group_of
from gensor_gym.cost.cpu.tiles import TASK
from gensor_gym.graph.compiled import lean
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
    PADDED,
    STRIDE,
    UNITS,
)

ROWS = 16
"""Rows of a tile register, and groups of the reduction that a step multiplies (`codegen.c.amx.steps`)."""
MOST_SUMS, FEWEST_TAPS, FEWEST_GROUPS = 4, 3, 4
LOADS_PER_CYCLE = 2.0
FEWEST_ROWS = 11.0
"""Rows that a product of tiles takes as long as if it has fewer: four products of 7 rows took 45 cycles, of 16 rows 77."""
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
        if groups_of_row(row, ints) == 0:
            return False
    elif length < step or ints[STRIDE + group] != 1:
        return False
    elif ints[ITEM] == 1 and row[PACK_A] == 0 and length % step != 0:
        return False
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if axis != slot and row[TILE + axis] > 1 and ints[STRIDE + MAX_AXES + axis] != 0:
            return False
    return parts_of(row, slot, ints)[0] > 0


@lean
def parts_of(row, slot, ints):  # noqa: ANN001, ANN201
    """Return (number of tiles of rows, rows of each) of a register tile; no tiles if its sums are too many or irregular."""
    outer, size, axes, down, across = 1, 1, 0, -1, -1
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if axis != slot and row[TILE + axis] > 1:
            outer, size, axes, down, across = outer * size, row[TILE + axis], axes + 1, across, axis
    most, pieces = MOST_SUMS // (row[TILE + slot] // ints[LANES]), (size + ROWS - 1) // ROWS
    line = _line(row, down, across, ints) if axes == 2 else 0
    if line > 0:
        rows = (outer - 1) * line + size
        joined = (rows + ROWS - 1) // ROWS
        if joined < outer * pieces and joined <= most:
            return joined, (rows + joined - 1) // joined
    if outer * pieces > most or (pieces > 2 and size % pieces != 0):
        return 0, 0
    return outer * pieces, (size + pieces - 1) // pieces


@lean
def _line(row, down, across, ints):  # noqa: ANN001, ANN201
    """Return how many pixels of a line lie between equal places of neighbouring lines; 0 if rows are not of lines.

    `down` and `across` are the axes along which a register tile has several rows.
    """
    inside, steps, lines, places, apart = -1, 0, 0, 0, 0
    for d in range(ints[NUM_DIMS]):
        at = COEF + d * MAX_AXES
        if ints[at + across] != 0:
            inside, steps, places, apart = at, ints[at + across], places + 1, apart + d
        if ints[at + down] != 0:
            lines, places, apart = ints[at + down], places + 1, apart - d
    if places != 2 or lines == 0 or steps == 0:
        return 0
    far, near = ints[STRIDE + down], ints[STRIDE + across]
    if row[PACK_A] == 1:
        if apart != 1:
            return 0
        length = 1
        for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
            if ints[inside + axis] != 0:
                if row[TILE + TASK * MAX_AXES + axis] != ints[EXTENT + axis]:
                    return 0
                length += ints[inside + axis] * (ints[EXTENT + axis] - 1)
        far, near = lines * length, steps
    elif ints[PADDED] != 0:
        return 0
    return 0 if far % near != 0 else far // near


@lean
def groups_of_row(row, ints):  # noqa: ANN001, ANN201
    """Return how many groups of the reduction a row of the scalar operand's tile holds; 0 if it holds none.

    If channels do not fill whole rows, a row holds fewer groups or, with channels first, one for each tap of a row of the window.
    """
    channels = ints[EXTENT + SPATIAL_SLOTS]
    if row[CONVOLUTION] != 1 or channels % (ROWS * ints[GROUPED]) == 0:
        return ROWS
    if ints[COEF + (ints[NUM_DIMS] - 1) * MAX_AXES + SPATIAL_SLOTS] == 1:
        groups = ROWS
        while groups >= FEWEST_GROUPS and channels % (groups * ints[GROUPED]) != 0:
            groups -= 1
        return groups if groups >= FEWEST_GROUPS else 0
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
    parts, size = parts_of(row, slot, ints)
    rows, groups = parts * max(size * 1.0, FEWEST_ROWS), groups_of_row(row, ints) * 1.0  # rows as they take time
    per_cycle = floats[MMA_PEAK] / (ints[UNITS] * floats[CLOCK])
    products = 2.0 * rows * vectors * ints[LANES] * ints[GROUPED] / per_cycle * ROWS / groups
    return products, (parts * size / groups + vectors) / LOADS_PER_CYCLE
