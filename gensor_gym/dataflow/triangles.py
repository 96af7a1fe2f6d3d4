"""Constant matrices with one number up to a diagonal and another after it, such as the mask of causal attention.

Kernels of attention skip what such a mask hides, and do not read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gensor_gym.operators.inputs import decode


@dataclass(frozen=True)
class Triangle:
    """The elements of a constant matrix: `below` in row r up to column r + `diagonal`, and `above` in the columns after it.

    The mask of causal attention is one, with 0 below and minus infinity above, or true and false. `diagonal` is 0 or more.
    """

    diagonal: int
    below: float
    above: float

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the elements, float64, of a matrix of this shape; leading axes repeat it."""
        rows, columns = shape[-2:]
        return np.broadcast_to(np.where(np.tri(rows, columns, self.diagonal, dtype=bool), self.below, self.above), shape)

    def visible(self, rows: int, columns: int) -> int:
        """Return how many elements of a matrix of `rows` x `columns` are up to the diagonal."""
        steps = min(rows, max(0, columns - self.diagonal - 1))  # rows that do not reach the last column
        return steps * (self.diagonal + 1) + steps * (steps - 1) // 2 + (rows - steps) * columns


def triangle_of(array: np.ndarray, dtype: str) -> Triangle | None:
    """Return the triangle whose elements a constant of the data type `dtype` has; None if it has others.

    All axes but the last two have extent 1. Both numbers of a triangle appear in its first row.
    """
    rows, columns = array.shape[-2:] if array.ndim > 1 else (1, 1)
    if array.size != rows * columns or rows == 1 or columns == 1:
        return None
    matrix = array.reshape(rows, columns)
    below, first = matrix[0, 0], matrix[0]
    diagonal = int(np.argmax(first != below)) - 1
    if diagonal < 0 or not (first[diagonal + 1 :] == first[-1]).all():  # decides for weights, which are not compared as a whole
        return None
    ends = [float(decode(np.array([one]), dtype)[0]) for one in (below, first[-1])]
    seen = np.tri(rows, columns, diagonal, dtype=bool)
    is_one = not any(map(math.isnan, ends)) and np.array_equal(matrix, np.where(seen, below, first[-1]))
    return Triangle(diagonal, *ends) if is_one else None
