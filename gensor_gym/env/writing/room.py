"""Compiled checks whether a partly written program may still become legal.

Resources that grow with tiles are checked with all later choices at their minimum. Conditions that need larger tiles (threads
that share a reduction, patches of warps, whole fragments) are checked with the sizes that are still available. The checks never
exclude a legal program. Some partial programs pass although they cannot become legal: limits conflict, or larger tiles of windows
and vectors need less of a resource than smaller tiles.
"""

from __future__ import annotations

from gensor_gym.env.writing.decisions import FIRST, WRITTEN
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.knob import CODE, L1_TILE, REGISTERS, SHARED, SPLIT, TASK_TILE
from gensor_gym.graph.knobs.lanes import warp_rows
from gensor_gym.graph.knobs.packing import is_packed_for_algorithm
from gensor_gym.graph.knobs.tensor_cores import PANEL, fragment_length
from gensor_gym.graph.limits import goes_with_cores
from gensor_gym.graph.matrices.choices import WGMMA_ROWS
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES
from gensor_gym.graph.rules import within
from gensor_gym.graph.tables.geometry import columns_of, power_value, reduce_product, tiles_along
from gensor_gym.graph.tables.layout import (
    CLUSTER,
    KNOB,
    LANE_MAP,
    MAX_AXES,
    PACK_B,
    REDUCE_THREADS,
    SPATIAL_SLOTS,
    TENSOR_CORE,
    TILE,
    VTHREAD,
    WARP_TILE,
)  # fmt: skip
from gensor_gym.graph.tables.tables import (
    COLUMNS_FROM,
    END_REDUCE,
    FIRST_SPATIAL,
    IMAGES,
    IS_CPU,
    ITEM,
    MATRIX_A,
    MATRIX_K,
    MATRIX_M,
    MATRIX_N,
    ROW_STEP,
    SIZE_START,
)  # fmt: skip

GROWING = REGISTERS | CODE | SHARED | L1_TILE | TASK_TILE | SPLIT
"""Hardware limits on resources that grow with tiles: if the later numbers at their minimum exceed one, all other choices of them
do, too."""


@lean
def keeps_room(row, fact, ints, sizes):  # noqa: ANN001, ANN201
    """Return whether a partly written program may still become legal. `fact` describes the decision that was written last.

    All numbers of later decisions must be at their minimum.
    """
    if not within(row, ints, GROWING):
        return False
    if ints[IS_CPU] == 1:
        decided = fact[FIRST] >= PACK_B or fact[FIRST] < KNOB
        return not decided or is_packed_for_algorithm(row, ints)
    return (
        goes_with_cores(row)
        and _shares_may_have_points(row, fact, ints, sizes)
        and _warps_may_be_whole(row, fact, ints, sizes)
        and (row[TENSOR_CORE] == 0 or _may_be_matrix(row, fact, ints, sizes))
    )


@lean
def _largest_ratio(axis, base, ints, sizes):  # noqa: ANN001, ANN202
    """Return the largest size of an axis that is a multiple of `base`, divided by `base`; 1 if no size is a multiple."""
    for i in range(ints[SIZE_START + axis + 1] - 1, ints[SIZE_START + axis] - 1, -1):
        if sizes[i] % base == 0:
            return sizes[i] // base
    return 1


@lean
def _has_multiple(axis, number, ints, sizes):  # noqa: ANN001, ANN202
    for i in range(ints[SIZE_START + axis], ints[SIZE_START + axis + 1]):
        if sizes[i] % number == 0:
            return True
    return False


@lean
def _shares_may_have_points(row, fact, ints, sizes):  # noqa: ANN001, ANN202
    """Return whether the axes' tiles may still give each of `reduce_threads` threads a register tile of the reduction."""
    if row[REDUCE_THREADS] == 0:
        return True
    most = 1
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        inner = row[TILE + axis]
        known = fact[WRITTEN + axis] >= 2
        most *= row[TILE + MAX_AXES + axis] // inner if known else _largest_ratio(axis, inner, ints, sizes)
    return power_value(row[REDUCE_THREADS]) <= most


@lean
def _warps_may_be_whole(row, fact, ints, sizes):  # noqa: ANN001, ANN202
    """Return whether the threads of a block may still be divisible into the patches that knob `warp_tile` has chosen.

    Conditions on other knobs are checked when those knobs are written.
    """
    rows = warp_rows(row[WARP_TILE])
    if rows == 0:
        return row[LANE_MAP] == 0 or fact[FIRST] == WARP_TILE
    if row[REDUCE_THREADS] > 0 or (row[LANE_MAP] > 0 and rows == 2):
        return False
    inner = _may_divide(row, SPATIAL_SLOTS - 1, 32 // rows, fact, ints, sizes)
    return inner and _may_divide(row, SPATIAL_SLOTS - 2, rows, fact, ints, sizes)


@lean
def _may_divide(row, axis, number, fact, ints, sizes):  # noqa: ANN001, ANN202
    """Return whether the number of threads along an axis may still become a multiple of `number`."""
    inner = row[TILE + axis]
    if fact[WRITTEN + axis] >= 2:
        return row[TILE + MAX_AXES + axis] // inner % number == 0
    return _has_multiple(axis, inner * number, ints, sizes)


@lean
def _may_be_matrix(row, fact, ints, sizes):  # noqa: ANN001, ANN202
    """Return whether the tiles may still fit the tensor-core instruction (`knobs.tensor_cores.is_whole_matrix`)."""
    m, n, k = ints[MATRIX_M], ints[MATRIX_N], ints[MATRIX_K]
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        alone = row[TENSOR_CORE] == 2 and axis != m and axis < ints[COLUMNS_FROM]
        if row[VTHREAD + axis] > 1:
            return False
        if alone and row[TILE + MAX_AXES + axis] > 1:
            if axis != ints[IMAGES] or not _panels_may_be_whole(row, fact, ints, sizes):
                return False
    for axis in (m, n, k):
        length = fragment_length(row, axis, ints)
        if fact[WRITTEN + axis] >= 1:
            if row[TILE + axis] % length != 0:
                return False
        elif not _has_multiple(axis, length, ints, sizes):
            return False
    level = row[TENSOR_CORE] - 1  # the level whose tile reduces along k alone
    if reduce_product(row, level, ints) != row[TILE + level * MAX_AXES + k]:
        return False
    return row[TENSOR_CORE] == 1 or _may_be_wgmma(row, fact, ints)


@lean
def _panels_may_be_whole(row, fact, ints, sizes):  # noqa: ANN001, ANN202
    """Return whether a wgmma tile may still be whole panels of 64 pixels of every image, in at most 256 columns."""
    p, q = SPATIAL_SLOTS - 2, SPATIAL_SLOTS - 1
    for i in range(ints[SIZE_START + p], ints[SIZE_START + p + 1]):
        if fact[WRITTEN + p] >= 1 and sizes[i] != row[TILE + p]:
            continue
        for j in range(ints[SIZE_START + q], ints[SIZE_START + q + 1]):
            if fact[WRITTEN + q] >= 1 and sizes[j] != row[TILE + q]:
                continue
            pixels = sizes[i] * sizes[j]
            if pixels % PANEL == 0 and pixels * row[TILE + ints[IMAGES]] <= 256:
                return True
    return False


@lean
def _may_be_wgmma(row, fact, ints):  # noqa: ANN001, ANN202
    """Return whether wgmma's limits may still hold: number of columns, tiles for a cluster, 128 bytes (a swizzle row) along k."""
    if columns_of(row, ints) > 256:
        return False
    m = ints[MATRIX_M]
    if ints[ROW_STEP] < WGMMA_ROWS and fact[WRITTEN + m] >= 2 and row[TILE + MAX_AXES + m] > row[TILE + m]:
        return False
    if row[CLUSTER] > 0 and tiles_along(row, ints[MATRIX_M], ints) < power_value(row[CLUSTER]):
        return False
    k = ints[MATRIX_K]
    step = SWIZZLE_BYTES // ints[ITEM + ints[MATRIX_A]]
    written = fact[WRITTEN + k]
    return written == 0 or (row[TILE + MAX_AXES + k] == step if written >= 2 else step % row[TILE + k] == 0)
