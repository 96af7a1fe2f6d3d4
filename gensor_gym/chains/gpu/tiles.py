"""Sizes of the tensor cores' instructions on 16-bit numbers, and how a right operand's tile lies in shared memory."""

from __future__ import annotations

from gensor_gym.chains.chain import Matrix

HEIGHT, DEPTH = 16, 16
"""Rows of a warp's instruction, and elements along its reduction."""
PAD = 8
"""Elements between rows of a tile for mma.sync: 16 bytes, so that eight rows one after another meet in no bank."""
ITEM = 2
"""Bytes of an element."""
WARP = 32


def is_deep(matrix: Matrix) -> bool:
    """Whether a right operand's tile has a row for each element of the reduction, because columns are adjacent in memory.

    Otherwise the tile has a row for each column of the product. A single row or column (stride 0) may be either.
    """
    return matrix.column == 1 or (matrix.column == 0 and matrix.row != 1)
