"""Which limits read what of an axis's chain of tiles, so that a mask of whole chains looks at each as seldom as can be.

Most limits read the tile of one level alone: they are looked at once for each size, not once for each chain. All others of a
program that keeps every limit stay kept, whatever the chain of one axis. Virtual threads take nothing on CUDA cores.
"""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.knob import CODE, L1_TILE, MATRIX, REDUCE_SHARES, REGISTERS, SHARED, SPLIT, TASK_TILE, WARPS
from gensor_gym.graph.tables.geometry import power_value
from gensor_gym.graph.tables.layout import REDUCE_THREADS, SPATIAL_SLOTS, TENSOR_CORE, WARP_TILE
from gensor_gym.graph.tables.tables import IS_CPU, WARP


@lean
def limits_of_level(row, axis, level, ints):  # noqa: ANN001, ANN201
    """Limits that read of the chain the tile of this level alone.

    Registers of a GPU are looked at with as few threads as can be: with a block tile that is the register tile.
    """
    reduces = axis >= SPATIAL_SLOTS
    if ints[IS_CPU] == 1:
        if level == 0:
            return REGISTERS | CODE
        return L1_TILE if level == 1 else TASK_TILE | SPLIT if reduces else TASK_TILE
    if level == 0:
        return CODE | REGISTERS
    shared = 0 if _shares_by_threads(row, ints) else SHARED
    return shared | SPLIT if reduces else shared


@lean
def limits_of_threads(axis, ints):  # noqa: ANN001, ANN201
    """Limits on how many threads there are: with one register tile, where a block tile has too many each larger one has."""
    return REGISTERS if ints[IS_CPU] == 0 and axis < SPATIAL_SLOTS else 0


@lean
def limits_of_chain(row, axis, ints):  # noqa: ANN001, ANN201
    """Limits that read several numbers of the chain and know no larger or smaller."""
    if ints[IS_CPU] == 1:
        return 0
    limits = SHARED if _shares_by_threads(row, ints) else 0
    if row[TENSOR_CORE] > 0:
        limits |= MATRIX
    if axis >= SPATIAL_SLOTS:
        return limits | REDUCE_SHARES if row[REDUCE_THREADS] > 0 else limits
    return limits | WARPS if row[WARP_TILE] > 0 else limits


@lean
def _shares_by_threads(row, ints):  # noqa: ANN001, ANN202
    """Whether shared memory depends on the register tile too: panels of wgmma, the exchange of a reduction by several warps."""
    return row[TENSOR_CORE] == 2 or power_value(row[REDUCE_THREADS]) > ints[WARP]
