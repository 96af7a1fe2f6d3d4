"""Knobs that map a warp's lanes to the threads of a block: in patches of rows and columns, interleaved or in order."""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.knob import MATRIX, WARPS, Knob
from gensor_gym.graph.structure import has_staged
from gensor_gym.graph.tables.layout import LANE_MAP, MAX_AXES, REDUCE_THREADS, SPATIAL_SLOTS, TILE, WARP_TILE
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def _has_patches(op: Operator, hardware: Hardware, value: int) -> bool:
    """Whether a patch of threads can share elements in shared memory along both rows and columns."""
    return has_staged(op) and len(op.spatial) > 1 and min(op.extents[a] for a in op.spatial[-2:]) > 1


KNOBS = (
    Knob(
        place=WARP_TILE, name="warp_tile", kind="gpu", values=(0, 1, 2, 3),
        doc="0 lanes in row order; 1, 2, 3: over 4x8, 8x4, 2x16 threads",
        cost="0 fills warps in row order; 1, 2, 3 lay a warp over 4x8, 8x4, 2x16 threads, which the block's must divide into",
        is_useful=_has_patches, raising=WARPS | MATRIX, lowering=WARPS, cores=(0,),
    ),
    Knob(
        place=LANE_MAP, name="lane_map", kind="gpu", values=(0, 1),
        doc="0, 1: lanes of a patch interleaved, for 128-bit shared loads",
        cost="1 interleaves lanes so that 128-bit shared loads do not conflict",
        is_useful=_has_patches, raising=WARPS | MATRIX, cores=(0,),
    ),
)  # fmt: skip


@lean
def warp_rows(warp_tile):  # noqa: ANN001, ANN201
    """Return the number of rows of the thread patch that a warp covers, for an index of a value of knob `warp_tile`.

    The 32 lanes cover rows x columns of threads; the result is 0 if lanes are in row order instead.
    """
    return 4 if warp_tile == 1 else 8 if warp_tile == 2 else 2 if warp_tile == 3 else 0


@lean
def are_warps_whole(row, ints):  # noqa: ANN001, ANN201
    """Whether the threads of a block can be divided into the patches of rows x columns that knob `warp_tile` chooses.

    The patches must divide the threads along the two innermost spatial axes. Lanes may be interleaved (`lane_map`) only in
    patches of 4 x 8 and 8 x 4. With patches, no threads may share a reduction.
    """
    rows = warp_rows(row[WARP_TILE])
    if rows == 0:
        return row[LANE_MAP] == 0
    if row[REDUCE_THREADS] > 0 or (row[LANE_MAP] > 0 and rows == 2):
        return False
    inner, outer = TILE + SPATIAL_SLOTS - 1, TILE + SPATIAL_SLOTS - 2
    across = row[inner + MAX_AXES] // row[inner]
    return across % (32 // rows) == 0 and row[outer + MAX_AXES] // row[outer] % rows == 0
