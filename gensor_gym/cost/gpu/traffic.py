"""Bytes that a GPU program requests from L2, reads from DRAM, and has in flight. Compiled."""

from __future__ import annotations

import math

from gensor_gym.cost.gpu.direct import SECTOR, direct_flying, direct_waste, l1_room
from gensor_gym.cost.gpu.lanes import contiguous_run, inner_tile, lanes_along
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.vector import copy_width
from gensor_gym.graph.resources import panel_bytes_of, threads_of
from gensor_gym.graph.tables.geometry import (
    box_width,
    footprint,
    fragment,
    matrix_elements,
    operand_bytes,
    power_value,
    taken_together,
    tensor_bytes,
    tiles_along,
)
from gensor_gym.graph.tables.layout import (
    CLUSTER,
    MAX_AXES,
    MAX_DIMS,
    RASTER,
    REDUCE_THREADS,
    SPATIAL_SLOTS,
    SPLIT_K,
    STAGES,
    TENSOR_CORE,
    TILE,
    VECTOR,
)
from gensor_gym.graph.tables.tables import (
    COLUMNS_FROM,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    ITEM,
    L2_BYTES,
    LAID_OUT,
    MATRIX_B,
    MATRIX_M,
    MATRIX_N,
    NUM_DIMS,
    NUM_READS,
    PADDED,
    STAGED,
    STRIDE,
    TRANSPOSED,
    UNITS,
    VIEW,
)

COMBINED = 2.0
"""Number of loads of B by tensor maps that one response of L2 serves, with or without a cluster. Chosen on products of 4096 in
bfloat16 (validation): clusters of two are no faster than single blocks, and 128 x 256 tiles ran faster than the bandwidth of L2
would allow for all their bytes."""


@lean
def sectors(width, item, aligned):  # noqa: ANN001, ANN201
    """Return the bytes moved for `width` contiguous elements, in 32-byte sectors; half a sector more if unaligned."""
    whole = math.ceil(width * item / SECTOR) * SECTOR
    return whole if aligned else whole + 0.5 * SECTOR


@lean
def warp_sectors(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the bytes moved for each element that a warp reads directly from global memory, in whole sectors."""
    if row[REDUCE_THREADS] > 0:
        axis = ints[END_REDUCE] - 1
        stride = ints[STRIDE + tensor * MAX_AXES + axis] * row[TILE + axis]
        fast = min(32, power_value(row[REDUCE_THREADS]))
    else:
        axis = SPATIAL_SLOTS - 1
        stride = ints[STRIDE + tensor * MAX_AXES + axis] * inner_tile(row, axis)
        fast = lanes_along(row, axis, ints)
    item = ints[ITEM + tensor]
    run = max(1, contiguous_run(row, tensor, ints))
    if stride == 0:
        return item * 1.0
    if fast == 1:  # one lane per row: each load touches a sector of its own, reused only through L1
        return max(item * 1.0, SECTOR / min(8.0, run * 1.0 if run > 1 else 2.0))
    waste = max(1.0, min(stride / run, SECTOR / (item * run)))
    return item * waste


@lean
def block_bytes(row, tensor, room, ints):  # noqa: ANN001, ANN201
    """Return the bytes that one block requests from L2 for one reduction step of an operand, in whole sectors.

    For B with wgmma the bytes are halved (`COMBINED`), because one response of L2 serves two loads. Repeated elements of a window
    come from L1. Operands laid out for wgmma are read in rows of 128 bytes, like in shared memory. An image read in place is read
    in whole panels of 64 pixels, including pixels beyond a consumer's columns.
    """
    if row[TENSOR_CORE] == 2 and (ints[COLUMNS_FROM] < ints[MATRIX_N] or ints[TRANSPOSED] > 0):
        share = COMBINED if tensor == ints[MATRIX_B] else 1.0
        if ints[LAID_OUT] + ints[TRANSPOSED] == 0 and tensor == ints[MATRIX_B]:
            return panel_bytes_of(row, ints) / share
        return matrix_elements(row, tensor, 1, ints) * ints[ITEM + tensor] / share
    if ints[STAGED + tensor] == 1 or row[TENSOR_CORE] > 0:
        width = box_width(row, tensor, 1, ints)
        box = footprint(row, tensor, 1, ints) * 1.0
        if row[TENSOR_CORE] == 2 and tensor == ints[MATRIX_B]:
            box /= COMBINED
        full = ints[VIEW + tensor * MAX_DIMS + ints[NUM_DIMS + tensor] - 1]
        whole_rows = width >= full
        per_row = (
            width * ints[ITEM + tensor]
            if whole_rows
            else sectors(width, ints[ITEM + tensor], ints[PADDED + tensor] == 0)
        )
        item = ints[ITEM + tensor]
        if row[TENSOR_CORE] < 2 and per_row > width * item:  # a later step may find the other bytes of a row's sectors in L1
            per_row += (width * item - per_row) * min(1.0, room / (box / width * per_row))
        return box / width * per_row
    each = direct_waste(row, tensor, room, warp_sectors(row, tensor, ints), ints)
    return footprint(row, tensor, 1, ints) * each


@lean
def wave_bytes(row, tensor, resident, ints):  # noqa: ANN001, ANN201
    """Return the distinct bytes of a tensor that the blocks of one wave (all blocks that run at once) touch.

    The bytes are counted over the whole reduction. Blocks follow each other along the innermost axis first. With raster R, a
    column of R blocks comes before the next column; with clusters of C blocks, a column of C blocks.
    """
    left = max(1, resident)
    size = ints[ITEM + tensor] * 1.0
    inner = SPATIAL_SLOTS - 1
    rows = max(power_value(row[RASTER]), power_value(row[CLUSTER]))
    for axis in range(SPATIAL_SLOTS - 1, ints[FIRST_SPATIAL] - 1, -1):
        extent, tile = taken_together(row, axis, ints)
        grid = (extent + tile - 1) // tile
        if axis == inner and rows > 1:
            count = max(1, min(grid, left // rows))
        else:
            count = min(grid, left)
        left = max(1, left // count)
        if ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            size *= min(extent, count * tile)
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        if ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            size *= ints[EXTENT + axis]
    return min(size, operand_bytes(row, tensor, ints))


@lean
def grid_blocks(row, ints):  # noqa: ANN001, ANN201
    """Return the number of blocks of the launch, in whole clusters. Blocks of a cluster have neighbouring tiles along m."""
    blocks = power_value(row[SPLIT_K])
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        tiles = tiles_along(row, axis, ints)
        if axis == ints[MATRIX_M] and row[CLUSTER] > 0:
            together = power_value(row[CLUSTER])
            tiles = (tiles + together - 1) // together * together
        blocks *= tiles
    return blocks


@lean
def traffic_of(row, blocks, resident, shared, steps, ints):  # noqa: ANN001, ANN201
    """Return the bytes that a program moves: (requested from L2, from DRAM, in flight per block, of one step of a block)."""
    traffic, unique, in_flight, arriving = 0.0, 0.0, 0.0, 0.0
    room = l1_room(resident, shared, ints)
    waves = math.ceil(blocks / (ints[UNITS] * resident))
    for t in range(ints[NUM_READS]):
        per_step = block_bytes(row, t, room, ints)
        arriving += per_step
        asked = per_step * steps * blocks
        traffic += asked
        size = operand_bytes(row, t, ints)
        if size <= 0.6 * ints[L2_BYTES]:
            union = size
        else:
            union = max(size if waves == 1 else 0.0, waves * wave_bytes(row, t, ints[UNITS] * resident, ints))
        unique += min(union, max(asked, 0.0))
        in_flight += flying_bytes(row, t, per_step, ints)
    out = ints[NUM_READS]
    written = tensor_bytes(out, ints)
    stretch = 1.0
    if row[TENSOR_CORE] == 0:
        stretch = warp_sectors(row, out, ints) / ints[ITEM + out]
    traffic += written * stretch
    unique += written * min(stretch, 2.0)
    return traffic, unique, max(in_flight, 32.0), arriving


@lean
def flying_bytes(row, tensor, per_step, ints):  # noqa: ANN001, ANN201
    """Return the bytes of an operand that a block has in flight.

    With several stages in shared memory they are the tiles of all stages but one, else the loads of the block's threads.
    """
    staged = ints[STAGED + tensor] == 1 or row[TENSOR_CORE] > 0
    if staged and row[STAGES] > 0:
        return per_step * row[STAGES]
    if not staged:
        return threads_of(row, ints) * direct_flying(row, tensor, ints)
    run = power_value(row[VECTOR]) if row[TENSOR_CORE] > 0 else copy_width(row, tensor, ints)
    return min(per_step, issued_bytes(row, tensor, run, ints))


@lean
def issued_bytes(row, tensor, run, ints):  # noqa: ANN001, ANN201
    """Return the bytes of an operand that the threads of a block can have in flight by loads of `run` elements each."""
    return threads_of(row, ints) * run * 4.0 * min(8.0, max(1.0, fragment(row, tensor, ints) * 1.0))
