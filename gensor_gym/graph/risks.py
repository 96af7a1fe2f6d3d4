"""Limits of the hardware that an action may break.

An action mask checks only these, because the program before the action keeps every limit.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.knobs.knob import CODE, L1_TILE, MATRIX, REDUCE_SHARES, REGISTERS, SHARED, SPLIT, TASK_TILE, WARPS
from gensor_gym.graph.tables.geometry import has_windows
from gensor_gym.graph.tables.layout import (
    CONVOLUTION,
    KNOB,
    LEVEL,
    REDUCE_THREADS,
    REGISTER_BUFFER,
    SHARED_LAYOUT,
    SPATIAL_SLOTS,
    TENSOR_CORE,
    UNROLL,
    VECTOR,
    WARP_TILE,
)
from gensor_gym.graph.tables.tables import IS_CPU, VECTOR_SLOT, WIDE_AXES

_OF_RAISING, _OF_LOWERING = np.array([knob.raising for knob in KNOBS]), np.array([knob.lowering for knob in KNOBS])
_WARP = 5
"""Index, among the values of `reduce_threads`, of the largest with which threads exchange sums without shared memory: one
warp."""
_PADDED = 1
"""Index, among the values of `shared_layout`, of the one that pads rows."""


@lean
def knob_risks(row, knob, upwards, ints):  # noqa: ANN001, ANN201
    """Return the limits that the next value of a knob may break, as the bits of an int.

    It is the value above if `upwards`, else the value below.

    On CUDA cores wider loads affect only the rows of windows, unrolling affects registers only with windows, and prefetching
    affects nothing. Threads that share a reduction need shared memory only beyond a warp. Of the layouts of shared memory, only
    padding takes memory.
    """
    risks = _OF_RAISING[knob] if upwards else _OF_LOWERING[knob]
    if risks == 0 or ints[IS_CPU] == 1:
        return risks
    place = KNOB + knob
    if place == VECTOR:
        return risks if ints[WIDE_AXES] > 0 else 0
    if place == SHARED_LAYOUT:
        return risks if row[SHARED_LAYOUT] != _PADDED else 0
    if row[TENSOR_CORE] > 0:
        return risks
    if place == UNROLL:
        return risks if has_windows(ints) else risks & ~REGISTERS
    if place == REDUCE_THREADS:
        return risks if row[REDUCE_THREADS] >= _WARP else risks & ~SHARED
    return 0 if place == REGISTER_BUFFER else risks


@lean
def growth_risks(row, axis, ints):  # noqa: ANN001, ANN201
    """Return the limits that a larger tile along an axis, at the level under construction, may break, as the bits of an int.

    Levels outside the one under construction copy its tile. So a larger register tile leaves the number of threads unchanged, and
    if the L1 tile fits in L2, the equal task tile fits in its larger share. On tensor cores any change of a register tile may
    break a fragment, and any change of a block tile may break the conditions of wgmma.
    """
    level, reduces = row[LEVEL], axis >= SPATIAL_SLOTS
    if ints[IS_CPU] == 1:
        risks = REGISTERS | CODE | L1_TILE if level == 0 else L1_TILE if level == 1 else TASK_TILE
        return risks | SPLIT if reduces else risks
    risks = SHARED | SPLIT if reduces else SHARED | REGISTERS
    return (risks | CODE | REGISTERS if level == 0 else risks) | _form_risks(row)


@lean
def shrinking_risks(row, axis, ints):  # noqa: ANN001, ANN201
    """Return the limits that a smaller tile along an axis, at the level under construction, may break, as the bits of an int.

    A smaller tile needs less, except for `uneven_risks`. But a block tile may become too small for the threads that share its
    reduction.
    """
    risks = uneven_risks(row, axis, row[LEVEL], ints)
    if ints[IS_CPU] == 1:
        return risks
    shares = REDUCE_SHARES if row[LEVEL] == 1 and axis >= SPATIAL_SLOTS else 0
    return shares | risks | _form_risks(row)


@lean
def uneven_risks(row, axis, level, ints):  # noqa: ANN001, ANN201
    """Return the limits that a smaller tile may break because it needs more of some resource, as the bits of an int.

    A smaller register tile may take more vectors (8 elements take 1, 7 take 3). Rows of a window may then allow wider copies that
    load more (3 columns of float32 under 3 taps take 5 elements, 2 columns take 6).
    """
    if ints[IS_CPU] == 1:
        vector = axis == ints[VECTOR_SLOT + row[CONVOLUTION]] or row[CONVOLUTION] == 2
        return REGISTERS | CODE if level == 0 and vector else 0
    return SHARED if row[VECTOR] > 0 and ints[WIDE_AXES] >> axis & 1 else 0


@lean
def _form_risks(row):  # noqa: ANN001, ANN201
    """Return the limits on the shape of a GPU's tiles, which a larger or a smaller tile may break, as the bits of an int."""
    matrix = row[TENSOR_CORE] == 2 or (row[TENSOR_CORE] == 1 and row[LEVEL] == 0)
    return (MATRIX if matrix else 0) | (WARPS if row[WARP_TILE] > 0 else 0)
