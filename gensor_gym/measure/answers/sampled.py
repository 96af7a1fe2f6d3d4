"""Computes single output elements of operators that are too large to compute whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gensor_gym.operators.bodies import BODIES
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.reference import BINARY, UNARY, WITH_OPERAND
from gensor_gym.operators.types import Access, Operator

Transform = Callable[[np.ndarray], np.ndarray]
"""Function of the float64 values that are read: the identity, or for error bounds the absolute value or the square."""
Body = Callable[..., np.ndarray]
"""Function of (operator, points [S, A], float64 inputs that the body reads) that computes elements before the epilogue, [S]."""
_CHUNK = 1 << 22
"""Largest number of elements that are read from an input at once."""


def sample_points(op: Operator, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return points of an operator's iteration space, int64 [S, A]: all corners and `count` random points. Reduce axes are 0."""
    spatial = np.array([n if a in op.spatial else 1 for a, n in enumerate(op.extents)], dtype=np.int64)
    random = (rng.random((count, len(spatial))) * spatial).astype(np.int64)
    corners = np.stack(np.meshgrid(*([0, n - 1] for n in spatial), indexing="ij"), axis=-1).reshape(-1, len(spatial))
    return np.unique(np.concatenate([corners, random]), axis=0)


def output_index(op: Operator, points: np.ndarray) -> np.ndarray:
    """Return the flat position in the output of every point, int64 [S]."""
    return points @ np.array(op.write.dense().axis_strides(), dtype=np.int64)


def same(values: np.ndarray) -> np.ndarray:
    """Return the values unchanged."""
    return values


def evaluate_at(
    op: Operator, inputs: Sequence[np.ndarray], points: np.ndarray, transform: Transform = same, body: Body | None = None
) -> np.ndarray:
    """Compute the output elements at `points` [S, A] of the iteration space: float64 [S].

    `inputs` are in the operator's order. `transform` is applied to the values that are read, such as the absolute value. `body`
    computes the elements before the epilogue, from transformed inputs; by default they are computed from the accesses.
    """
    reads = len(op.reads)
    if body is None:
        out = _body(op, inputs[:reads], points, transform)
    else:
        out = body(op, points, *(transform(np.asarray(array, np.float64)) for array in inputs[:reads]))
    operands = iter(inputs[reads:])
    still = np.zeros((1, len(op.extents)), dtype=np.int64)
    for stage in op.epilogue:
        if stage.access is None:
            out = UNARY[stage.name](out)
            continue
        values = _gather(stage.access, next(operands), points, still, 0.0, transform)[:, 0]
        out = WITH_OPERAND[stage.name](out, values)
    return out


def _body(op: Operator, inputs: Sequence[np.ndarray], points: np.ndarray, transform: Transform) -> np.ndarray:
    """Compute the output elements at `points` before the epilogue, float64 [S], in chunks that bound the memory."""
    steps = np.zeros((1, len(op.extents)), dtype=np.int64)
    if op.reduce:
        grid = np.indices([op.extents[a] for a in op.reduce]).reshape(len(op.reduce), -1).T
        steps = np.zeros((len(grid), len(op.extents)), dtype=np.int64)
        steps[:, list(op.reduce)] = grid
    size = max(1, _CHUNK // len(steps))
    parts = [_reduced(op, inputs, points[i : i + size], steps, transform) for i in range(0, len(points), size)]
    return np.concatenate(parts)


def _reduced(
    op: Operator, inputs: Sequence[np.ndarray], points: np.ndarray, steps: np.ndarray, transform: Transform
) -> np.ndarray:
    """Compute the output elements at `points` [S, A] before the epilogue: reduce over the reduction points `steps` [R, A]."""
    values = [_gather(r, x, points, steps, op.pad_value, transform) for r, x in zip(op.reads, inputs, strict=True)]
    if op.body == "map":
        return (UNARY if len(values) == 1 else BINARY)[op.function](*(v[:, 0] for v in values))
    return op.reduction.numpy.reduce(BODIES[op.body].numpy(*values), axis=1) / op.divisor


def _gather(
    access: Access, array: np.ndarray, points: np.ndarray, steps: np.ndarray, pad_value: float, transform: Transform
) -> np.ndarray:
    """Return the elements that an access reads at every output point plus every reduction point: float64 [S, R].

    `transform` is applied to the elements that are read. Outside the tensor the value is `pad_value`. An index is affine, so it
    is a part of the output point plus a part of the reduction point. Only padded dimensions are checked element by element.
    """
    coefficients = np.array(access.coefficients, dtype=np.int64).T
    start, more = points @ coefficients + np.array(access.offset, dtype=np.int64), steps @ coefficients
    strides = np.array(access.dense().strides(), dtype=np.int64)
    flat = (start @ strides)[:, None] + (more @ strides)[None, :]
    inside = None
    for dimension, size in enumerate(access.view):
        low, high = start[:, dimension], more[:, dimension]
        if low.min() + high.min() >= 0 and low.max() + high.max() < size:
            continue
        index = low[:, None] + high[None, :]
        fits = (index >= 0) & (index < size)
        inside = fits if inside is None else inside & fits
    if inside is None:
        return transform(decode(array.reshape(-1)[flat], access.tensor.dtype).astype(np.float64))
    read = decode(array.reshape(-1)[np.where(inside, flat, 0)], access.tensor.dtype).astype(np.float64)
    return np.where(inside, transform(read), pad_value)
