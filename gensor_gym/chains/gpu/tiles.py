"""Sizes of tensor-core instructions on 16-bit numbers, and the layout of a right operand's tile in shared memory."""

from __future__ import annotations

from gensor_gym.chains.chain import Matrix

HEIGHT, DEPTH = 16, 16
"""Number of rows of one instruction of a warp, and its number of elements along the reduction."""
PAD = 8
"""Number of padding elements after each row of a tile for mma.sync.

They are 16 bytes, so that eight consecutive rows use different banks.
"""
ITEM = 2
"""Bytes of an element."""
WARP = 32


def is_deep(matrix: Matrix) -> bool:
    """Return whether the tile of a right operand has one row in shared memory for each element of the reduction.

    This is so if columns are adjacent in memory; otherwise the tile has one row for each column. A single row or column (stride
    0) may have either layout.
    """
    return matrix.column == 1 or (matrix.column == 0 and matrix.row != 1)
