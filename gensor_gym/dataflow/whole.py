"""Integer arithmetic of nodes that compute in int64: exact, with wrap-around at 64 bits, in two's complement.

Operands of other types are converted: float32 is truncated towards 0 and limited to the range of int64; bool is 0 or 1. Quotients
are rounded down. A quotient or remainder of a division by 0 is 0. An index outside a table selects zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gensor_gym.dataflow.bounds import joined_rows
from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand, walk
from gensor_gym.dataflow.nodes import Concat, Gather, Map, Node, Pad, Reduce, Scatter, Slice, Transpose

Array = np.ndarray
LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""Range of int64."""


def _divided(a: Array, b: Array) -> Array:
    return np.where(b == -1, np.negative(a), np.floor_divide(a, np.where((b == 0) | (b == -1), 1, b))) * (b != 0)


def _left(a: Array, b: Array) -> Array:
    """Return the remainder with the sign of a."""
    return np.fmod(a, np.where((b == 0) | (b == -1), 1, b))


WHOLE: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": _divided, "negative": np.negative,
    "absolute": np.abs, "maximum": np.maximum, "minimum": np.minimum, "round": lambda x: x, "fmod": _left,
    "less": lambda a, b: (a < b).astype(np.int64), "at_most": lambda a, b: (a <= b).astype(np.int64),
    "where": lambda condition, a, b: np.where(condition != 0, a, b), "bits_and": np.bitwise_and,
}  # fmt: skip
"""Name of a scalar function -> its function of int64 arrays. Functions that are missing have no integer form."""
JOINED: Mapping[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "prod": np.multiply}
"""How `Scatter` joins rows -> function of two numbers."""


def is_computable(node: Node) -> bool:
    """Return whether a node can compute in int64.

    Products cannot, nor expressions with fractions or functions without integer form. Infinite constants become the ends of
    int64's range, except in comparisons, because no integer compares like an infinity.
    """
    if isinstance(node, Map):
        return all(_is_whole(part) for part in walk(node.expression))
    if isinstance(node, Pad | Scatter):
        return _is_number(node.value if isinstance(node, Pad) else node.start)
    return isinstance(node, Reduce | Slice | Transpose | Concat | Gather)


def _is_whole(part: Expression) -> bool:
    if isinstance(part, Call):
        compared = part.arguments if part.function in ("less", "at_most") else ()
        return part.function in WHOLE and not any(isinstance(one, Constant) and math.isinf(one.value) for one in compared)
    return isinstance(part, Operand) or _is_number(part.value)


def _is_number(value: float) -> bool:
    return math.isinf(value) or value == int(value)


def whole_number(value: float) -> int:
    """Convert a constant to an int64. Infinities become the ends of the range; larger numbers wrap around."""
    if math.isinf(value):
        return MOST if value > 0 else LEAST
    return (int(value) - LEAST) % (1 << 64) + LEAST


def converted(array: Array) -> Array:
    """Convert an array to int64: truncated towards 0 and limited to the range. NaN becomes the least number."""
    if array.dtype.kind != "f":
        return array.astype(np.int64, copy=False)
    with np.errstate(invalid="ignore"):
        inside = (array >= float(LEAST)) & (array < -float(LEAST))
        return np.where(inside, np.where(inside, array, 0.0).astype(np.int64), np.where(array > 0, MOST, LEAST))


def computed(expression: Expression, given: Mapping[str, Array]) -> Array:
    """Compute an expression in int64, from the int64 arrays `given` by name."""
    if isinstance(expression, Operand):
        return given[expression.name]
    if isinstance(expression, Constant):
        return np.asarray(whole_number(expression.value), np.int64)
    with np.errstate(over="ignore"):
        return WHOLE[expression.function](*(computed(part, given) for part in expression.arguments))


def computed_node(node: Node, known: Mapping[str, Array]) -> Array:
    """Compute a node that `is_computable` in int64, from arrays of any type in `known`, by name."""
    given: Any = {name: converted(known[name]) for name in node.inputs}
    match node:
        case Map(expression):
            return np.asarray(computed(expression, given))
        case Reduce(source, body, axes):
            array = given[source]
            reduced = np.sum(array, axes, np.int64, keepdims=True) if body == "sum" else np.max(array, axes, keepdims=True)
            return np.asarray(reduced)
        case Transpose(source, order):
            return np.transpose(given[source], order)
        case Slice(source, axis, start, stop):
            return given[source][(slice(None),) * axis + (slice(start, stop),)]  # type: ignore[no-any-return]
        case Concat(sources, axis):
            return np.concatenate([given[source] for source in sources], axis)
        case Pad(source, axis, before, after, value):
            width = [(before, after) if other == axis else (0, 0) for other in range(np.ndim(given[source]))]
            return np.pad(given[source], width, constant_values=whole_number(value))
        case Gather(table, ids):
            rows, places = given[table], given[ids]
            inside = (places >= 0) & (places < len(rows))
            return np.where(inside[(...,) + (None,) * (np.ndim(rows) - 1)], rows[np.where(inside, places, 0)], 0)
        case Scatter(source, ids, rows, body, start):
            flat = given[source].reshape(-1, *given[source].shape[np.ndim(given[ids]) :])
            return joined_rows(JOINED[body], flat, np.ravel(given[ids]), rows, whole_number(start))
    raise ValueError(f"a {type(node).__name__.lower()} has no integer form")
