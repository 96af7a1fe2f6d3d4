"""Layout of a schedule's row of int32 numbers, equal for every operator and hardware.

Letters: B batch, L tiling level, A loop-axis slot, T tensor, D tensor dimension.
"""

from __future__ import annotations

LAYOUT_VERSION = 1

MAX_AXES = 8
SPATIAL_SLOTS = 5
"""Slots 0..4 are spatial axes, right-aligned: the innermost spatial axis of any operator is slot 4."""
REDUCE_SLOTS = MAX_AXES - SPATIAL_SLOTS
"""Slots 5..7 are reduce axes, left-aligned: the outermost reduce axis of any operator is slot 5."""
MAX_LEVELS = 4
MAX_TENSORS = 5
MAX_DIMS = 5

TILE = 0
VTHREAD = TILE + MAX_LEVELS * MAX_AXES
LEVEL = VTHREAD + MAX_AXES
KNOB = LEVEL + 1
(
    SPLIT_K, REDUCE_THREADS, VECTOR, UNROLL, STAGES, REGISTER_BUFFER, SHARED_LAYOUT, WARP_TILE, LANE_MAP, RASTER,
    PERSISTENT, CLUSTER, TENSOR_CORE, CONVOLUTION, PACK_A, PACK_B, LOOP_ORDER, PREFETCH, THREAD_SPLIT,
    ROW,
) = range(KNOB, KNOB + 20)  # fmt: skip
"""Indices of the knobs in a schedule's row (`graph/knobs/`), then ROW, the length of a row. A row contains tiles [L, A], virtual
threads [A], the level under construction, and for each knob the index of its value. Layouts, checkpoints and recorded tables
depend on the order."""
NUM_KNOBS = ROW - KNOB


def slot_of(axis: int, spatial: int) -> int:
    """Return the slot (place in a schedule's row) of axis number `axis` of an operator.

    Spatial axes come first; `spatial` is their number.
    """
    return SPATIAL_SLOTS - spatial + axis
