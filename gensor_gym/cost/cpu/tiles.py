"""The tiles that generated C really has: the tiles of the schedule, cut and merged like in `codegen.c.plan`. Compiled."""

from __future__ import annotations

from gensor_gym.cost.cpu.groups import group_of
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.resources import vectors_of
from gensor_gym.graph.tables.geometry import power_value
from gensor_gym.graph.tables.layout import CONVOLUTION, MAX_AXES, PACK_A, PACK_B, ROW, SPATIAL_SLOTS, THREAD_SPLIT, TILE
from gensor_gym.graph.tables.tables import (
    COEF,
    COPIED,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    FROZEN_READ,
    GROUPED,
    ITEM,
    LANES,
    NUM_DIMS,
    NUM_READS,
    STRIDE,
)

TASK = 2
"""Index of the memory level of task tiles. A task is the work that a thread takes at a time."""
ROWS, COLUMNS = SPATIAL_SLOTS - 2, SPATIAL_SLOTS - 1
"""Slots, in a schedule's row, of a convolution's rows and columns of pixels."""


@lean
def round_up(value, step):  # noqa: ANN001, ANN201
    """Return the smallest multiple of `step` that is at least `value`."""
    return (value + step - 1) // step * step


@lean
def fill_effective(row, slot, ints, result):  # noqa: ANN001, ANN201
    """Write into `result` [ROW] the row with the tiles that the generated code really has. `slot` is the vector axis.

    Tiles are cut to the extent (along the vector axis, to whole vectors). If a task is one register tile and nothing is packed
    for each reduce block, its reduce blocks are merged. If an L1 tile is one register tile, its accumulators stay in registers
    over the whole task tile. Blocks whose partial sums an output of 16 bits would have to hold are merged. A shifted matrix
    product whose input is copied takes whole rows of pixels and the whole reduction.
    """
    for i in range(ROW):
        result[i] = row[i]
    for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
        _clip(result, axis, axis == slot, ints)
    if slot >= SPATIAL_SLOTS and group_of(row, slot, ints) == slot:
        _widen(result, slot, ints)
    if row[CONVOLUTION] == 2 and ints[COPIED] == 1:
        result[TILE + TASK * MAX_AXES + slot] = ints[EXTENT + slot]
        for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
            result[TILE + MAX_AXES + axis] = ints[EXTENT + axis]
            result[TILE + TASK * MAX_AXES + axis] = ints[EXTENT + axis]
        return
    if not _packs_blocks(row, slot, ints) and _is_one(result, TASK, ints):
        _merge_blocks(result, ints)
    whole = ints[ITEM + ints[NUM_READS]] == 2 and (row[THREAD_SPLIT] == 0 or not _has_blocks(result, ints))
    if whole:
        _merge_all(result, ints)
    if whole or _is_one(result, 1, ints):
        for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
            result[TILE + MAX_AXES + axis] = result[TILE + TASK * MAX_AXES + axis]


@lean
def serves_all(row, tensor, ints):  # noqa: ANN001, ANN201
    """Whether several tasks read the same elements of an operand, or every call does because it is constant."""
    repeated = ints[FROZEN_READ + tensor] == 1
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        tile = row[TILE + TASK * MAX_AXES + axis]
        repeated = repeated or (ints[STRIDE + tensor * MAX_AXES + axis] == 0 and tile < ints[EXTENT + axis])
    return repeated


@lean
def _packs_blocks(row, slot, ints):  # noqa: ANN001, ANN201
    """Whether some operand is packed again for each block of the reduction.

    In an operator with constant weights and without groups, an operand that serves all tasks is copied as a whole.
    """
    whole = ints[FROZEN_READ + 1] == 1 and group_of(row, slot, ints) < 0
    first = row[PACK_A] == 1 and not (whole and serves_all(row, 0, ints))
    return first or (row[PACK_B] == 1 and not (whole and serves_all(row, 1, ints)))


@lean
def _clip(row, axis, vector, ints):  # noqa: ANN001, ANN201
    """Cut the tiles of an axis to its extent. `vector` says whether it is the vector axis."""
    extent, register = ints[EXTENT + axis], TILE + axis
    l1, task = register + MAX_AXES, register + TASK * MAX_AXES
    if axis >= SPATIAL_SLOTS and not vector:
        row[register], row[l1], row[task] = min(row[register], extent), min(row[l1], extent), min(row[task], extent)
        return
    limit = extent
    if vector:
        limit = round_up(extent, ints[LANES])
        packed = row[PACK_A] == 1 or row[PACK_B] == 1 or row[CONVOLUTION] == 2
        if axis < SPATIAL_SLOTS and not packed and vectors_of(extent, ints) == limit // ints[LANES]:
            limit = extent
    row[register] = min(row[register], limit)
    row[l1] = min(row[l1], round_up(extent, row[register]))
    row[task] = min(row[task], round_up(extent, row[l1]))


@lean
def _widen(row, axis, ints):  # noqa: ANN001, ANN201
    """Lengthen the tiles along a vector axis whose lanes take a group of products each (`codegen.c.group`)."""
    extent, register = ints[EXTENT + axis], TILE + axis
    l1, task = register + MAX_AXES, register + TASK * MAX_AXES
    row[register] = min(ints[GROUPED] * row[register], round_up(extent, ints[GROUPED]))
    row[l1] = min(round_up(row[l1], row[register]), round_up(extent, row[register]))
    row[task] = min(round_up(row[task], row[l1]), round_up(extent, row[l1]))


@lean
def is_carried(row, ints):  # noqa: ANN001, ANN201
    """Whether the output holds partial sums between one block of the reduction and the next. `row` is from `fill_effective`."""
    blocks = 1
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        extent, task = ints[EXTENT + axis], row[TILE + TASK * MAX_AXES + axis]
        if row[TILE + MAX_AXES + axis] < min(task, extent):
            return True
        blocks *= (extent + task - 1) // task
    return blocks > power_value(row[THREAD_SPLIT])


@lean
def moves_back(row, axis, slot, ints):  # noqa: ANN001, ANN201
    """Whether the last register tile along a spatial axis starts earlier, to end at the extent (`Plan.moves_back`)."""
    size, extent, task = row[TILE + axis], ints[EXTENT + axis], row[TILE + TASK * MAX_AXES + axis]
    rest = extent % task
    if extent % size == 0 or (rest if rest > 0 else size) < size or is_carried(row, ints):
        return False
    return axis != slot or (row[PACK_A] == 0 and row[PACK_B] == 0 and row[CONVOLUTION] != 2)


@lean
def _is_one(row, level, ints):  # noqa: ANN001, ANN201
    """Whether the tile of a memory level is a single register tile along all spatial axes."""
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if row[TILE + level * MAX_AXES + axis] != row[TILE + axis]:
            return False
    return True


@lean
def _merge_blocks(row, ints):  # noqa: ANN001, ANN201
    """Merge the blocks of a task's reduction into one, or into one for each share of a split reduction."""
    first = True
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        task, extent = TILE + TASK * MAX_AXES + axis, ints[EXTENT + axis]
        if extent <= row[task]:
            continue
        if first and row[THREAD_SPLIT] > 0:
            splits = power_value(row[THREAD_SPLIT])
            row[task] *= ((extent + row[task] - 1) // row[task] + splits - 1) // splits
        else:
            row[task] = round_up(extent, row[TILE + axis])
        first = False


@lean
def _merge_all(row, ints):  # noqa: ANN001, ANN201
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        task, extent = TILE + TASK * MAX_AXES + axis, ints[EXTENT + axis]
        if extent > row[task]:
            row[task] = round_up(extent, row[TILE + axis])


@lean
def _has_blocks(row, ints):  # noqa: ANN001, ANN201
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        if row[TILE + TASK * MAX_AXES + axis] < ints[EXTENT + axis]:
            return True
    return False


@lean
def tiles_of(row, level, ints):  # noqa: ANN001, ANN201
    """Return how many tiles of a memory level cover the output."""
    fused = row[CONVOLUTION] == 2
    count = pixel_tiles(row, level, ints) if fused else 1
    for axis in range(ints[FIRST_SPATIAL], ROWS if fused else SPATIAL_SLOTS):
        tile = row[TILE + level * MAX_AXES + axis]
        count *= (ints[EXTENT + axis] + tile - 1) // tile
    return count


@lean
def pixel_tiles(row, level, ints):  # noqa: ANN001, ANN201
    """Return how many tiles of a memory level cover the fused rows and columns of pixels of a shifted matrix product.

    The gaps between rows are computed, too.
    """
    tile = row[TILE + level * MAX_AXES + ROWS] * row[TILE + level * MAX_AXES + COLUMNS]
    if ints[COPIED] == 0:
        return (ints[EXTENT + ROWS] * ints[EXTENT + COLUMNS] + tile - 1) // tile
    task = row[TILE + TASK * MAX_AXES + ROWS]
    tasks = (ints[EXTENT + ROWS] + task - 1) // task
    if level == TASK:
        return tasks
    return tasks * ((task * pixel_pitch(ints) + tile - 1) // tile)


@lean
def pixel_pitch(ints):  # noqa: ANN001, ANN201
    """Return the distance between rows of pixels in the input of a shifted matrix product, in pixels.

    It is the number of columns, plus the overhang of the window if the input is copied.
    """
    if ints[COPIED] == 0:
        return ints[EXTENT + COLUMNS]
    at = COEF + (ints[NUM_DIMS] - 1) * MAX_AXES
    reach = 0
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        reach += ints[at + axis] * (ints[EXTENT + axis] - 1)
    return ints[EXTENT + COLUMNS] + reach // ints[at + COLUMNS]
