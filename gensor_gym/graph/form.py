"""The form that tensor cores and warps ask of a program's tiles. Compiled, for one row of a GPU."""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.layout import MAX_AXES, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.graph.resources import (
    CLUSTER,
    CONVOLUTION,
    LANE_MAP,
    PERSISTENT,
    REDUCE_THREADS,
    REGISTER_BUFFER,
    TENSOR_CORE,
    WARP_TILE,
    columns_of,
    power_value,
    reduce_product,
    tiles_along,
)
from gensor_gym.graph.tables import (
    COLUMN_STEP,
    COLUMNS_FROM,
    FIRST_SPATIAL,
    INSTRUCTION_K,
    ITEM,
    MATRIX_A,
    MATRIX_K,
    MATRIX_M,
    MATRIX_N,
)


@lean
def is_whole_matrix(row, ints):  # noqa: ANN001, ANN201
    """Whether the register tile is whole fragments of the instruction, and knobs of other programs stand at their first.

    mma.sync: 16 x 8 x INSTRUCTION_K, one element of a window at a time. wgmma: 64 rows, up to 256 columns in eights (of int8
    in sixteens), one swizzle row of 128 bytes along k in each step, a tile along m for every block of a cluster. Columns are
    one matrix of a batch, or neighbouring pixels of one image; of a convolution that is laid out pixels of several rows and
    images, at one element of the window in each step.
    """
    if row[TENSOR_CORE] == 0:
        return row[PERSISTENT] == 0 and row[CLUSTER] == 0
    if row[REDUCE_THREADS] + row[WARP_TILE] + row[LANE_MAP] + row[CONVOLUTION] > 0:
        return False
    m, n, k = ints[MATRIX_M], ints[MATRIX_N], ints[MATRIX_K]
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if row[VTHREAD + axis] > 1:
            return False
        alone = row[TENSOR_CORE] == 2 and axis != m and axis < ints[COLUMNS_FROM]
        if alone and row[TILE + MAX_AXES + axis] > 1:
            return False
    for axis in (m, n, k):
        if row[TILE + axis] % fragment_length(row, axis, ints) != 0:
            return False
    if row[TENSOR_CORE] == 1:
        return row[PERSISTENT] == 0 and row[CLUSTER] == 0 and reduce_product(row, 0, ints) == row[TILE + k]
    if columns_of(row, ints) > 256 or row[REGISTER_BUFFER] > 0:
        return False
    if row[CLUSTER] > 0 and tiles_along(row, m, ints) < power_value(row[CLUSTER]):
        return False
    one = reduce_product(row, 1, ints) == row[TILE + MAX_AXES + k]
    return one and row[TILE + MAX_AXES + k] * ints[ITEM + ints[MATRIX_A]] == 128


@lean
def fragment_length(row, axis, ints):  # noqa: ANN001, ANN201
    """What a register tile along an axis is a multiple of on tensor cores: the fragment of the instruction."""
    if axis == ints[MATRIX_M]:
        return 16 if row[TENSOR_CORE] == 1 else 64
    if axis == ints[MATRIX_N]:
        return 8 if row[TENSOR_CORE] == 1 else ints[COLUMN_STEP]
    return ints[INSTRUCTION_K] if axis == ints[MATRIX_K] else 1


@lean
def warp_rows(warp_tile):  # noqa: ANN001, ANN201
    """Rows of threads that a warp is laid over by knob warp_tile; its 32 lanes fill as many columns. 0: row order."""
    return 4 if warp_tile == 1 else 8 if warp_tile == 2 else 2 if warp_tile == 3 else 0


@lean
def are_warps_whole(row, ints):  # noqa: ANN001, ANN201
    """Whether the patch of a warp divides the block's threads along the two innermost spatial axes.

    Lanes are interleaved (lane_map) in patches of 4 x 8 and 8 x 4 only. No threads share a reduction.
    """
    rows = warp_rows(row[WARP_TILE])
    if rows == 0:
        return row[LANE_MAP] == 0
    if row[REDUCE_THREADS] > 0 or (row[LANE_MAP] > 0 and rows == 2):
        return False
    inner, outer = TILE + SPATIAL_SLOTS - 1, TILE + SPATIAL_SLOTS - 2
    across = row[inner + MAX_AXES] // row[inner]
    return across % (32 // rows) == 0 and row[outer + MAX_AXES] // row[outer] % rows == 0
