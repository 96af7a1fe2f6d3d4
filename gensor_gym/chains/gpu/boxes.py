"""Descriptions of a chain's operands for the tensor memory accelerator (TMA, sm_90), which copies boxes of arrays."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.chains.chain import Chain, Matrix
from gensor_gym.chains.gpu.tiles import ITEM, is_deep

ALIGNED = 16 // ITEM
"""Number of 16-bit elements in 16 bytes. Offset and strides of a tensor map are multiples of it (`cuTensorMapEncodeTiled`)."""
MOST_DIMENSIONS = 5
"""Largest number of dimensions of a tensor map (`cuTensorMapEncodeTiled`)."""


@dataclass(frozen=True)
class Boxes:
    """The matrices of all batch elements as one array of R dimensions, as a tensor map describes it.

    Dimensions are outermost first, and the innermost is contiguous.
    """

    matrix: Matrix
    shape: tuple[int, ...]  # [R] elements
    strides: tuple[int, ...]  # [R - 1] elements, of all dimensions but the innermost
    batch: tuple[tuple[int, int], ...]
    """(divisor, extent) of each of the R - 2 batch dimensions.

    The index of a batch element along it is `element / divisor % extent`.
    """


def boxes_of(chain: Chain) -> tuple[Boxes, Boxes, Boxes] | None:
    """Describe the left operand and both right operands of a chain for tensor maps.

    Return None if a tensor map cannot describe one of them. The left operand must be contiguous along the reduction; a right
    operand may be contiguous along either axis.
    """
    one, other = chain.products
    found = [_boxes(chain, chain.left, deep=True, extents=(one.rows, one.inner))]
    for matrix, extents in ((chain.first, (one.inner, one.columns)), (chain.second, (other.inner, other.columns))):
        found.append(_boxes(chain, matrix, is_deep(matrix), extents))
    left, first, second = found
    return None if left is None or first is None or second is None else (left, first, second)


def _boxes(chain: Chain, matrix: Matrix, deep: bool, extents: tuple[int, int]) -> Boxes | None:
    """Describe a matrix for a tensor map.

    The matrix must be contiguous along its columns if `deep`, else along its rows; otherwise the result is None.
    """
    steps, sizes = ((matrix.row, matrix.column), extents) if deep else ((matrix.column, matrix.row), extents[::-1])
    batch = _batch(chain.batch, matrix.batch)
    row = steps[0] or -(-sizes[1] // ALIGNED) * ALIGNED  # a single row has no stride of its own
    strides = (*(step for _, _, step in batch), row)
    if steps[1] != 1 or len(strides) >= MOST_DIMENSIONS or any(place % ALIGNED for place in (matrix.offset, *strides)):
        return None
    shape = (*(extent for _, extent, _ in batch), *sizes)
    return Boxes(matrix, shape, strides, tuple((below, extent) for below, extent, _ in batch))


def _batch(extents: tuple[int, ...], steps: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Express the batch in as few dimensions as possible, outermost first.

    Return (divisor, extent, stride) of each: an element's index is `element / divisor % extent`. Dimensions of stride 0 are
    omitted.
    """
    found, below = list[tuple[int, int, int]](), 1
    for extent, step in zip(reversed(extents), reversed(steps), strict=True):
        if step and extent > 1:
            inner = found[0] if found else (0, 0, 0)
            if inner[0] * inner[1] == below and inner[1] * inner[2] == step:
                found[0] = (inner[0], inner[1] * extent, inner[2])
            else:
                found.insert(0, (below, extent, step))
        below *= extent
    return found
