"""Winograd's algorithm F(2x2, 3x3) for convolutions: its matrices, its work, and how it rounds (arXiv 1509.09308, section 4.1).

An output tile Y of 2x2 elements is computed from an input tile d of 4x4 elements and a filter g of 3x3 elements, with `*` for the
product of elements:

    Y = A ((G g G^T) * (B d B^T)) A^T

The products are summed over input channels before A is applied. So each of the 16 elements (*points*) of a tile is a matrix
product of [tiles, input channels] by [input channels, output channels]. An output depends on no element outside its window, but
differences of infinities are NaN.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.operators.images import IMAGES, in_order, order_of, outputs
from gensor_gym.operators.loops import Loops
from gensor_gym.operators.reference import finished

TILE, TAPS = 2, 3
"""Rows and columns of an output tile, and of a filter."""
SPAN = TILE + TAPS - 1
"""Rows and columns of an input tile."""
POINTS = SPAN**2
_AT_ONCE = 256
"""Number of elements of `magnitude_at` that are computed at once, which bounds its memory."""
INPUT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
"""Matrix B^T of the paper, [SPAN, SPAN]: input tile -> points."""
FILTER = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
"""Matrix G of the paper, [SPAN, TAPS]: filter -> points."""
OUTPUT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
"""Matrix A^T of the paper, [TILE, SPAN]: points -> output tile."""
SHARE = POINTS / (TILE * TAPS) ** 2
"""Multiply-adds of the algorithm, divided by those of plain sums: 16 / 36."""


def tiles_of(op: Loops) -> tuple[int, int, int]:
    """Return the numbers of images, of rows of tiles and of columns of tiles of a convolution."""
    p, q = outputs(op)
    return op.extents[0], -(-p // TILE), -(-q // TILE)


def padding_of(op: Loops) -> tuple[int, int]:
    """Return the rows above and the columns left of an image that are padding."""
    given = dict(op.arguments).get("padding", 0)
    top, left = given if isinstance(given, tuple) else (given, given)
    return int(top), int(left)


def magnitude_at(op: Loops, points: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Evaluate `magnitude`, before the epilogue, at `points` int64 [S, A] of the iteration space, float64 [S]."""
    return np.concatenate([_at(op, points[start : start + _AT_ONCE], x, w) for start in range(0, len(points), _AT_ONCE)])


def _at(op: Loops, points: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    n, k, p, q = (points[:, axis] for axis in op.spatial)
    top, left = padding_of(op)
    span = np.arange(SPAN)
    rows, columns = (TILE * (one // TILE)[:, None] - before + span for one, before in ((p, top), (q, left)))
    inside = [(some >= 0) & (some < size) for some, size in zip((rows, columns), x.shape[1:3], strict=True)]
    places = n[:, None, None], np.where(inside[0], rows, 0)[:, :, None], np.where(inside[1], columns, 0)[:, None, :]
    tiles = x[places] * (inside[0][:, :, None] & inside[1][:, None, :])[..., None]
    made = np.einsum("ia,sabc,jb->sijc", np.abs(INPUT), tiles, np.abs(INPUT), optimize=True)
    filters = np.einsum("ir,scrt,jt->sijc", np.abs(FILTER), w[k], np.abs(FILTER), optimize=True)
    down, across = np.abs(OUTPUT)[p % TILE], np.abs(OUTPUT)[q % TILE]
    found: np.ndarray = np.einsum("si,sij,sj->s", down, np.einsum("sijc,sijc->sij", made, filters), across)
    return found


def magnitude(op: Loops, *inputs: np.ndarray) -> np.ndarray:
    """Evaluate the algorithm, and the epilogue, with the absolute values of its matrices and inputs, float64 [op.output.shape].

    `inputs` are absolute values in float64. Rounding errors of an output are proportional to this number, which also counts
    terms that cancel in the exact result.
    """
    x, w = inputs[:2]
    images, down, across = tiles_of(op)
    p, q = outputs(op)
    (top, left), (_, h, wide, channels) = padding_of(op), x.shape
    size = [SPAN + TILE * (count - 1) for count in (down, across)]
    padded = np.zeros((images, max(size[0], top + h), max(size[1], left + wide), channels))
    padded[:, top : top + h, left : left + wide] = x
    filters = np.einsum("ir,kcrs,js->ijck", np.abs(FILTER), w, np.abs(FILTER))
    blocks = np.lib.stride_tricks.sliding_window_view(padded, (SPAN, SPAN), axis=(1, 2))[
        :, : size[0] - SPAN + 1 : TILE, : size[1] - SPAN + 1 : TILE
    ]
    made = np.zeros((images, down, TILE, across, TILE, w.shape[0]))
    for i in range(SPAN):
        for j in range(SPAN):
            point = np.einsum("nyxcab,a,b->nyxc", blocks, np.abs(INPUT[i]), np.abs(INPUT[j])) @ filters[i, j]
            for a in range(TILE):
                for b in range(TILE):
                    if OUTPUT[a, i] and OUTPUT[b, j]:
                        made[:, :, a, :, b] += point
    sums = made.reshape(images, TILE * down, TILE * across, -1)[:, :p, :q]
    return finished(op, in_order(sums, order_of(op, "result"), IMAGES[1]), inputs[2:])
