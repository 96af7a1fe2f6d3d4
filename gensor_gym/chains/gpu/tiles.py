"""Sizes of tensor-core instructions on 16-bit numbers, and the layout of a right operand's tile in shared memory."""

from __future__ import annotations

from gensor_gym.chains.chain import Matrix

HEIGHT, DEPTH = 16, 16
"""Rows of an instruction of a warp, and its elements along the reduction."""
PAD = 8
"""Elements of padding after each row of a tile for mma.sync: 16 bytes, so that eight consecutive rows use different banks."""
ITEM = 2
"""Bytes of an element."""
WARP = 32


def is_deep(matrix: Matrix) -> bool:
    """Whether a right operand's tile has a row for each element of the reduction, because columns are adjacent in memory.

    Otherwise the tile has a row for each column. A single row or column (stride 0) may have either layout.
    """
    return matrix.column == 1 or (matrix.column == 0 and matrix.row != 1)
