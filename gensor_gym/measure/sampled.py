"""The value of single output elements, from an operator's accesses: for operators too large to compute whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.operators.reference import BINARY, UNARY
from gensor_gym.operators.types import Access, Operator

_CHUNK = 1 << 22
"""Elements gathered at once."""


def sample_points(op: Operator, count: int, rng: np.random.Generator) -> np.ndarray:
    """Places in the space of the spatial axes, int64 [S, A] with reduce axes 0: every corner, the rest at random."""
    spatial = np.array([n if a in op.spatial else 1 for a, n in enumerate(op.extents)], dtype=np.int64)
    random = (rng.random((count, len(spatial))) * spatial).astype(np.int64)
    corners = np.stack(np.meshgrid(*([0, n - 1] for n in spatial), indexing="ij"), axis=-1).reshape(-1, len(spatial))
    return np.unique(np.concatenate([corners, random]), axis=0)


def output_index(op: Operator, points: np.ndarray) -> np.ndarray:
    """Flat positions in the output of every point, int64 [S]."""
    return _flat(op.write, points)[0]


def evaluate_at(op: Operator, inputs: Sequence[np.ndarray], points: np.ndarray) -> np.ndarray:
    """float64 [S]: output elements at `points` [S, A], for decoded arrays in the operator's order."""
    reads = len(op.reads)
    out = _body(op, inputs[:reads], points)
    operands = iter(inputs[reads:])
    for stage in op.epilogue:
        if stage.access is None:
            out = UNARY[stage.name](out)
            continue
        values = _gather(stage.access, next(operands), points, 0.0)
        out = out * values if stage.name == "scale" else out + values
    return out


def _body(op: Operator, inputs: Sequence[np.ndarray], points: np.ndarray) -> np.ndarray:
    """The operator without its epilogue, points in chunks of bounded memory."""
    steps = np.zeros((1, len(op.extents)), dtype=np.int64)
    if op.reduce:
        grid = np.indices([op.extents[a] for a in op.reduce]).reshape(len(op.reduce), -1).T
        steps = np.zeros((len(grid), len(op.extents)), dtype=np.int64)
        steps[:, list(op.reduce)] = grid
    size = max(1, _CHUNK // len(steps))
    parts = [_reduced(op, inputs, points[i : i + size], steps) for i in range(0, len(points), size)]
    return np.concatenate(parts)


def _reduced(op: Operator, inputs: Sequence[np.ndarray], points: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Reduction over all steps [R, A] for every point [S, A]."""
    places = (points[:, None, :] + steps[None, :, :]).reshape(-1, points.shape[1])
    shape = (len(points), len(steps))
    values = [_gather(r, x, places, op.pad_value).reshape(shape) for r, x in zip(op.reads, inputs, strict=True)]
    if op.body == "multiply_add":
        return (values[0] * values[1]).sum(axis=1) / op.divisor
    if op.body == "sum":
        return values[0].sum(axis=1) / op.divisor
    if op.body == "max":
        return values[0].max(axis=1)
    table = UNARY if len(values) == 1 else BINARY
    return table[op.function](*(v[:, 0] for v in values))


def _flat(access: Access, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(flat index, whether it lies inside the view) of every place [P, A]."""
    index = places @ np.array(access.coefficients, dtype=np.int64).T + np.array(access.offset, dtype=np.int64)
    view = np.array(access.view, dtype=np.int64)
    inside = np.asarray(((index >= 0) & (index < view)).all(axis=1))
    return np.clip(index, 0, view - 1) @ np.array(access.strides(), dtype=np.int64), inside


def _gather(access: Access, array: np.ndarray, places: np.ndarray, pad_value: float) -> np.ndarray:
    """float64 [P]: what the access reads at every place [P, A]."""
    flat, inside = _flat(access, places)
    return np.where(inside, array.reshape(-1)[flat].astype(np.float64), pad_value)
