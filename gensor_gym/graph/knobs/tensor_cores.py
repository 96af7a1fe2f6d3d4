"""Knobs for tensor cores: the instruction, and two choices of programs with wgmma: persistent blocks, clusters of blocks.

Clusters of 4 are masked: they fill 16 of up to 18 multiprocessors of a GPC, and the model ignores the idle multiprocessors.
"""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.knob import CODE, MATRIX, REGISTERS, SHARED, SPLIT, Knob
from gensor_gym.graph.matrices.choices import WGMMA_ROWS, tensor_core_choices
from gensor_gym.graph.structure import matrix_axes
from gensor_gym.graph.tables.geometry import columns_of, power_value, reduce_product, tiles_along
from gensor_gym.graph.tables.layout import (
    CLUSTER,
    MAX_AXES,
    PERSISTENT,
    SPATIAL_SLOTS,
    TENSOR_CORE,
    TILE,
    VTHREAD,
)
from gensor_gym.graph.tables.tables import (
    COLUMN_STEP,
    COLUMNS_FROM,
    FIRST_SPATIAL,
    IMAGES,
    INSTRUCTION_K,
    ITEM,
    LAID_OUT,
    MATRIX_A,
    MATRIX_K,
    MATRIX_M,
    MATRIX_N,
    ROW_STEP,
)
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def _has_tiles_for(op: Operator, hardware: Hardware, blocks: int) -> bool:
    roles = matrix_axes(op) if 2 in tensor_core_choices(op, hardware) else None
    return roles is not None and op.axes[roles.m].extent > (blocks - 1) * WGMMA_ROWS


PANEL = 64
"""Number of columns of B, 128 bytes of 16-bit elements, that are contiguous in shared memory."""
EQUAL_SHARES = 2
"""Index, among the values of knob `persistent`, of the one with which blocks take equal shares of all steps instead of whole
tiles."""

KNOBS = (
    Knob(
        place=TENSOR_CORE, name="tensor_core", kind="gpu", values=(0, 1, 2),
        doc="0 CUDA cores, 1 mma.sync, 2 wgmma with tensor maps (products but of tf32x3, conv2d without groups, on sm_90)",
        cost="0 CUDA cores, 1 mma.sync, 2 wgmma with TMA: whole fragments",
        is_useful=lambda op, hardware, core: core in tensor_core_choices(op, hardware),
        raising=MATRIX | REGISTERS | CODE | SHARED | SPLIT, lowering=MATRIX | REGISTERS | CODE | SHARED, structural=True,
    ),
    Knob(
        place=PERSISTENT, name="persistent", kind="gpu", values=(0, 1, 2),
        doc="0, 1: blocks stay and loop over tiles; 2: over equal shares of all steps of all tiles (wgmma)",
        cost="tile scheduler in the kernel; 2: tiles that blocks share are added up through a workspace",
        is_useful=lambda op, hardware, value: 2 in tensor_core_choices(op, hardware), raising=MATRIX | SPLIT, cores=(2,),
    ),
    Knob(
        place=CLUSTER, name="cluster", kind="gpu", values=(1, 2, 4), masked=(4,),
        doc="1, 2 (4): neighbouring blocks along m that share a tile of B (wgmma)",
        cost="blocks that must be resident together",
        is_useful=_has_tiles_for, raising=MATRIX, cores=(2,),
    ),
)  # fmt: skip


@lean
def is_whole_matrix(row, ints):  # noqa: ANN001, ANN201
    """Whether a program's tiles fit its tensor-core instruction; True for programs on CUDA cores.

    mma.sync needs multiples of 16 x 8 x k (`INSTRUCTION_K`), and one element of a window at a time. wgmma needs 64 rows (a
    shorter m is one tile with fewer rows), up to 256 columns in multiples of eight (sixteen for int8), one swizzle row of 128
    bytes along k in each step, and a tile along m for every block of a cluster. Columns belong to one matrix of a batch, or are
    neighbouring pixels of one image, or are whole panels of 64 pixels of several images. The columns of a convolution with
    rearranged operands are pixels of several rows and images, at one element of the window in each step.
    """
    if row[TENSOR_CORE] == 0:
        return True
    m, n, k = ints[MATRIX_M], ints[MATRIX_N], ints[MATRIX_K]
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if row[VTHREAD + axis] > 1:
            return False
        alone = row[TENSOR_CORE] == 2 and axis != m and axis < ints[COLUMNS_FROM]
        if alone and row[TILE + MAX_AXES + axis] > 1 and not (axis == ints[IMAGES] and pixels_of(row, ints) % PANEL == 0):
            return False
    for axis in (m, n, k):
        if row[TILE + axis] % fragment_length(row, axis, ints) != 0:
            return False
    if row[TENSOR_CORE] == 1:
        return reduce_product(row, 0, ints) == row[TILE + k]
    columns = columns_of(row, ints)
    if columns > 256 or columns % ints[COLUMN_STEP] != 0:
        return False
    if ints[ROW_STEP] < WGMMA_ROWS and row[TILE + MAX_AXES + m] > row[TILE + m]:
        return False
    if row[CLUSTER] > 0 and tiles_along(row, m, ints) < power_value(row[CLUSTER]):
        return False
    one = reduce_product(row, 1, ints) == row[TILE + MAX_AXES + k]
    return one and row[TILE + MAX_AXES + k] * ints[ITEM + ints[MATRIX_A]] == 128


@lean
def pixels_of(row, ints):  # noqa: ANN001, ANN201
    """Return how many columns a wgmma's register tile takes from one matrix, or pixels from one image."""
    pixels = 1
    for axis in range(ints[COLUMNS_FROM], SPATIAL_SLOTS):
        pixels *= row[TILE + axis]
    return pixels


@lean
def fragment_length(row, axis, ints):  # noqa: ANN001, ANN201
    """Return the length of a tensor-core instruction's operand fragment along an axis; 1 for other axes than m, n, k.

    A register tile on tensor cores is a multiple of it.
    """
    if axis == ints[MATRIX_M]:
        return 16 if row[TENSOR_CORE] == 1 else ints[ROW_STEP]
    if axis == ints[MATRIX_N]:
        return 8 if row[TENSOR_CORE] == 1 or ints[LAID_OUT] == 1 else ints[COLUMN_STEP]
    return ints[INSTRUCTION_K] if axis == ints[MATRIX_K] else 1
