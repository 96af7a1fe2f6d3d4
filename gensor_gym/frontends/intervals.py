"""Interval arithmetic for integers: bounds on values, and on the numbers that float32 kernels would round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from gensor_gym.dataflow.bounds import MOST_WHOLE
from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Concat, Contract, Gather, Map, Node, Pad, Reduce, Scatter

Interval = tuple[float, float]
ANY: Interval = (-math.inf, math.inf)


def of_node(graph: Dataflow, node: Node, known: Mapping[str, Interval]) -> tuple[Interval, float]:
    """Bound the elements of a node.

    Return (their interval, largest magnitude of the numbers that float32 would round on the way). `known` has the intervals of
    the values that it reads.
    """
    if isinstance(node, Map):
        return _of_expression(node.expression, known)
    if isinstance(node, Reduce | Contract):
        least, most = known[node.inputs[0]]
        if isinstance(node, Contract) and len(node.sources) == 2:
            least, most = _product((least, most), known[node.sources[1]])
        if (node.body if isinstance(node, Reduce) else node.operator.body) == "max":
            return (least, most), _most((least, most))
        shape = graph.values[node.inputs[0]].shape
        count = math.prod(shape[axis] for axis in node.axes) if isinstance(node, Reduce) else _terms(node)
        return (min(count * least, least), max(count * most, most)), count * _most((least, most))
    if isinstance(node, Scatter):
        return _joined(node, known[node.source], math.prod(graph.values[node.ids].shape))
    if isinstance(node, Gather):
        return known[node.table], _most(known[node.table])
    parts = [known[name] for name in node.inputs] + ([(node.value, node.value)] if isinstance(node, Pad) else [])
    assert len(parts) == 1 or isinstance(node, Concat | Pad)
    return _hull(*parts), _most(_hull(*parts))


def _joined(node: Scatter, one: Interval, count: int) -> tuple[Interval, float]:
    """Bound the elements of a scatter of `count` rows whose elements are in the interval `one`."""
    first = (node.start, node.start)
    if node.body == "max":
        return _hull(first, one), _most(one) if math.isinf(node.start) else _most(_hull(first, one))
    if node.body == "sum":
        found = (node.start + min(count * one[0], 0.0), node.start + max(count * one[1], 0.0))
        return found, abs(node.start) + count * _most(one)
    most = max(_most(one), 1.0)
    most = abs(node.start) * (most**count if most == 1.0 or count * math.log2(most) < 1000 else math.inf)
    return (-most, most), most


def _terms(node: Contract) -> int:
    return node.operator.points // node.operator.output.size


def _of_expression(expression: Expression, known: Mapping[str, Interval]) -> tuple[Interval, float]:
    """Bound an expression. Return (its interval, largest magnitude of the numbers that float32 would round on the way)."""
    if isinstance(expression, Operand):
        return known[expression.name], _most(known[expression.name])
    if isinstance(expression, Constant):
        value = float(expression.value)
        return (value, value), 0.0 if math.isinf(value) else abs(value)
    parts = [_of_expression(part, known) for part in expression.arguments]
    found = _OF.get(expression.function, lambda *_: ANY)(*(interval for interval, _ in parts))
    own = _most(found) if expression.function in ("add", "subtract", "multiply", "bits_and") else 0.0
    sizes = [size for _, size in parts]
    if expression.function in ("less", "at_most") and _are_apart(expression.arguments, parts):
        sizes = [0.0]
    if expression.function == "where" and isinstance(expression.arguments[0], Operand):
        sizes[0] = 0.0  # rounding makes no other number 0
    return found, max(own, *sizes)


def _are_apart(arguments: tuple[Expression, ...], parts: list[tuple[Interval, float]]) -> bool:
    """Return whether a comparison in float32 is exact although one of its arguments may be rounded.

    Only large magnitudes are rounded: the comparison is exact if the other argument never reaches them.
    """
    (_, small), (other, large) = sorted(zip(arguments, (size for _, size in parts), strict=True), key=lambda part: part[1])
    return small < MOST_WHOLE and (_is_read(other) or large <= MOST_WHOLE)


def _is_read(expression: Expression) -> bool:
    """Return whether an expression is a value, its negative or its absolute value. Only reading the value can then round it."""
    if isinstance(expression, Call) and expression.function in ("absolute", "negative"):
        return _is_read(expression.arguments[0])
    return isinstance(expression, Operand)


def _most(interval: Interval) -> float:
    return max(map(abs, interval))


def _hull(*parts: Interval) -> Interval:
    return min(least for least, _ in parts), max(most for _, most in parts)


def _product(one: Interval, other: Interval) -> Interval:
    ends = [0.0 if 0.0 in (a, b) else a * b for a in one for b in other]
    return min(ends), max(ends)


def _quotient(one: Interval, by: Interval) -> Interval:
    """Return the interval of a quotient of integers, rounded down. A divisor other than 0 is at least 1 in magnitude."""
    if by[0] <= 0.0 <= by[1]:
        return -_most(one), _most(one)
    least, most = _product(one, (1.0 / by[1], 1.0 / by[0]))
    return math.floor(least) if math.isfinite(least) else least, most


def _size(one: Interval) -> Interval:
    return 0.0 if one[0] <= 0.0 <= one[1] else min(map(abs, one)), max(map(abs, one))


def _nearest(one: Interval) -> Interval:
    return tuple(round(end) if math.isfinite(end) else end for end in one)  # type: ignore[return-value]


def _left(one: Interval, by: Interval) -> Interval:
    """Return the interval of a remainder: no farther from 0 than either argument, with the sign of the first."""
    most = min(_size(one)[1], _size(by)[1])
    return -most if one[0] < 0.0 else 0.0, most if one[1] > 0.0 else 0.0


def _bits(one: Interval, other: Interval) -> Interval:
    """Return the interval of a bitwise and: up to a non-negative argument's bound, else to a power of 2 beyond both arguments."""
    tops = [most for least, most in (one, other) if least >= 0.0]
    if tops:
        return 0.0, min(tops)
    most = max(_size(one)[1], _size(other)[1])
    return (-(2.0 ** math.ceil(math.log2(most + 1.0))), most) if math.isfinite(most) else ANY


_OF: Mapping[str, Callable[..., Interval]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]), "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": _product, "divide": _quotient, "negative": lambda a: (-a[1], -a[0]), "absolute": _size, "round": _nearest,
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])), "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "less": lambda a, b: (0.0, 1.0), "at_most": lambda a, b: (0.0, 1.0), "where": lambda condition, a, b: _hull(a, b),
    "fmod": _left, "bits_and": _bits,
}  # fmt: skip
"""Scalar function -> function that computes its interval from its arguments' intervals. Results of missing functions have no
bounds.
"""
