"""How a warp's lanes map to the threads of a block, and what their loads from shared memory cost. Compiled."""

from __future__ import annotations

import math

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.lanes import warp_rows
from gensor_gym.graph.knobs.vector import copy_width
from gensor_gym.graph.resources import staged_row
from gensor_gym.graph.tables.geometry import box_length, fragment
from gensor_gym.graph.tables.layout import (
    CONVOLUTION,
    LANE_MAP,
    MAX_AXES,
    MAX_DIMS,
    REDUCE_THREADS,
    SHARED_LAYOUT,
    SPATIAL_SLOTS,
    TILE,
    VTHREAD,
    WARP_TILE,
)
from gensor_gym.graph.tables.tables import COEF, EXTENT, FIRST_SPATIAL, NUM_DIMS, SHARED_INNER, STAGED, STRIDE, WINDOW


@lean
def lanes_along(row, axis, ints):  # noqa: ANN001, ANN201
    """Return how many threads of a warp are next to each other along a spatial axis, by knob `warp_tile`.

    Without a patch of threads, lanes fill innermost axes first.
    """
    left = lanes_to_place(row)
    for at in range(SPATIAL_SLOTS - 1, axis, -1):
        left //= threads_along(row, at)
    return placed_along(row, axis, left)


@lean
def lanes_to_place(row):  # noqa: ANN001, ANN201
    """Return how many register tiles of the output a warp computes: 32 divided by the threads that share a reduction."""
    return max(1, 32 >> row[REDUCE_THREADS])


@lean
def place(row, axis, left):  # noqa: ANN001, ANN201
    """Return (lanes along an axis, lanes left for the outer axes), if the inner axes leave `left` lanes of a warp."""
    threads = threads_along(row, axis)
    if threads == 1 or (left <= 1 and row[WARP_TILE] == 0):
        return 1, left if threads == 1 else 0
    return placed_along(row, axis, left), left // threads


@lean
def placed_along(row, axis, left):  # noqa: ANN001, ANN201
    """Return how many lanes of a warp are along an axis, if the inner axes leave `left` lanes."""
    rows = warp_rows(row[WARP_TILE])
    if rows > 0:
        return 32 // rows if axis == SPATIAL_SLOTS - 1 else rows if axis == SPATIAL_SLOTS - 2 else 1
    return max(1, min(left, threads_along(row, axis)))


@lean
def threads_along(row, axis):  # noqa: ANN001, ANN201
    """Return how many register tiles a block tile has along an axis."""
    inner, outer = row[TILE + axis], row[TILE + MAX_AXES + axis]
    return 1 if inner == outer else outer if inner == 1 else max(1, outer // inner)


@lean
def run_axis(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the spatial axis along which one thread reads neighbouring elements of a tensor; -1 if there is none.

    It indexes the contiguous dimension with stride one, in shared memory if the tensor is copied there. In the matrix of an
    implicit product it is the innermost axis that indexes the tensor, with any stride.
    """
    matrix = row[CONVOLUTION] == 3 and ints[STAGED + tensor] == 1
    dimension = ints[SHARED_INNER + tensor] if ints[STAGED + tensor] == 1 else ints[NUM_DIMS + tensor] - 1
    at = COEF + (tensor * MAX_DIMS + dimension) * MAX_AXES
    for axis in range(SPATIAL_SLOTS - 1, ints[FIRST_SPATIAL] - 1, -1):
        moves = ints[STRIDE + tensor * MAX_AXES + axis] != 0 if matrix else ints[at + axis] == 1
        if moves and ints[EXTENT + axis] > 1:
            return axis
    return -1


@lean
def contiguous_run(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return how many contiguous elements of a tensor one thread reads: the inner tile along its `run_axis`."""
    axis = run_axis(row, tensor, ints)
    return inner_tile(row, axis) if axis >= 0 else 1


@lean
def inner_tile(row, axis):  # noqa: ANN001, ANN201
    """Return how many neighbouring elements along an axis one thread computes: its register tile over the virtual threads."""
    return row[TILE + axis] if row[VTHREAD + axis] == 1 else row[TILE + axis] // row[VTHREAD + axis]


@lean
def word_run(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the number of elements in one load of a thread: the largest power of two, at most 4, that divides the thread's run.

    The run is the contiguous elements that the thread reads. The result is 1 for a window, because its rows shift.
    """
    if ints[WINDOW + tensor] == 1 and row[CONVOLUTION] != 3:
        return 1
    run = contiguous_run(row, tensor, ints)
    return 4 if run % 4 == 0 else 2 if run % 2 == 0 else 1


@lean
def neighbours_share(row, tensor, ints):  # noqa: ANN001, ANN201
    """Whether a warp's lanes read shared memory in pairs: each lane the same address as lane ^ 1, or each as lane ^ 2.

    Then a 128-bit load takes two phases instead of four. This holds with interleaved lanes, for both operands of a product, and
    along rows of threads for operands that only columns index.
    """
    if row[LANE_MAP] == 1:
        return True
    across = lanes_along(row, SPATIAL_SLOTS - 1, ints)
    inner = ints[STRIDE + tensor * MAX_AXES + SPATIAL_SLOTS - 1] != 0
    outer = ints[STRIDE + tensor * MAX_AXES + SPATIAL_SLOTS - 2] != 0
    return not inner if across >= 4 else not (inner and outer)


@lean
def padding(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the padding per row of a tile in shared memory, in elements; 0 unless `shared_layout` = 1.

    It is 4 if several elements are copied or read at once, else 1.
    """
    if row[SHARED_LAYOUT] != 1:
        return 0
    return 4 if copy_width(row, tensor, ints) > 1 or contiguous_run(row, tensor, ints) % 2 == 0 else 1


@lean
def store_conflicts(row, tensor, width, ints):  # noqa: ANN001, ANN201
    """Return how many wavefronts a warp's store to shared memory takes, if the tile's rows are transposed in the tensor.

    Elements are stored one by one. Neighbouring lanes copy neighbouring elements of the tensor. Lanes along its inner dimensions
    store to different rows of the tile, all others contiguously.
    """
    if row[SHARED_LAYOUT] == 2:
        return 1.0
    apart = width * (staged_row(row, tensor, ints) + padding(row, tensor, ints))
    apart = min(apart & -apart, 32)  # the greatest common divisor with 32 banks
    if apart == 1:
        return 1.0
    lanes = 1
    for d in range(ints[SHARED_INNER + tensor] + 1, ints[NUM_DIMS + tensor]):
        lanes *= box_length(row, tensor, d, 1, ints)
    if lanes <= width:
        return 1.0
    along = min(32.0, lanes / width)
    beside = 32.0 / along  # lanes that are neighbours in one row, which takes that many banks if rows do not overlap
    return 32.0 / ((min(along, 32.0 / apart) - 1.0) * min(apart * 1.0, beside) + beside)


@lean
def shared_wavefronts(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return how many wavefronts of 128 bytes a warp takes to load its threads' operands from shared memory, per reduction point.

    Each load takes at least one wavefront for every 32 distinct words, times the conflict degree of the lanes' stride in banks of
    4 bytes (1 if shared memory is swizzled). It also takes at least its phases: 4 for 128 bits, 2 if neighbouring lanes share an
    address.
    """
    run = word_run(row, tensor, ints)
    loads = math.ceil(fragment(row, tensor, ints) / run)
    distinct, stride_words = 1, 1
    pitch = staged_row(row, tensor, ints) + padding(row, tensor, ints)
    last = COEF + (tensor * MAX_DIMS + ints[SHARED_INNER + tensor]) * MAX_AXES
    left = lanes_to_place(row)
    for axis in range(SPATIAL_SLOTS - 1, ints[FIRST_SPATIAL] - 1, -1):
        lanes, left = place(row, axis, left)
        if lanes > 1 and ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            if distinct == 1:
                inner = inner_tile(row, axis)
                step = 1 if row[CONVOLUTION] == 3 else ints[last + axis]
                stride_words = inner * (step if step > 0 else pitch)
            distinct *= lanes
    words = distinct * run
    stride_words = max(stride_words, 1)
    reach = 32 // min(stride_words & -stride_words, 32) * run  # over the greatest common divisor with 32 banks
    conflict = max(1.0, min(distinct, 32 // run) * run / min(32, max(reach, run)))
    if row[SHARED_LAYOUT] == 2:
        conflict = 1.0
    phases = run / 2.0 if neighbours_share(row, tensor, ints) else run * 1.0
    return loads * max(max(1.0, phases), max(1.0, words / 32.0) * min(conflict, 32.0))
