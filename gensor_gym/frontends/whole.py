"""Interval arithmetic for integers, which kernels compute in float32: bounds on the inputs within which all results are exact.

Sums and products of integers are exact as long as no magnitude exceeds 2**24. Every call checks its inputs against a bound, and
the largest valid bound is found by bisection here. Values computed from float32 inputs have no bound, unless an operation such as
a clamp limits them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set

import numpy as np

from gensor_gym.dataflow.bounds import MOST_WHOLE
from gensor_gym.dataflow.expressions import Constant, Expression, Operand
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Concat, Contract, Gather, Map, Node, Pad, Reduce

Interval = tuple[float, float]
_ANY: Interval = (-math.inf, math.inf)


def limits_of_whole(graph: Dataflow, constants: Mapping[str, np.ndarray], whole: Set[str]) -> dict[str, int]:
    """Name of an integer input -> the largest magnitude for which the nodes named `whole` are exact.

    ValueError names a node that may be inexact for any inputs.
    """
    behind = _behind(graph, whole)
    given = [value.name for value in graph.inputs if value.name in behind and value.dtype in ("int32", "int64")]
    nodes = [(name, node) for name, node in graph.nodes if name in behind]
    least: dict[str, Interval] = {}
    for value in graph.inputs:
        if value.name in behind:
            array = constants.get(value.name)
            bounds = (0.0, 1.0) if value.dtype == "bool" else _ANY
            least[value.name] = bounds if array is None else (float(np.nanmin(array)), float(np.nanmax(array)))

    def fault(most: float) -> str:
        """Name of the first node that may be inexact for inputs of magnitude up to `most`; empty if there is none."""
        known = least | dict.fromkeys(given, (-most, most))
        for name, node in nodes:
            known[name], size = _of_node(graph, node, known)
            if name in whole and not size <= MOST_WHOLE:
                return name
        return ""

    if name := fault(1.0):
        raise ValueError(f"{name}: whole numbers that may be above {MOST_WHOLE:.0f}, made of float32: expected bounded ones")
    low, high = 1, int(MOST_WHOLE)
    if not fault(high):
        low = high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fault(middle) else (middle, high)
    return dict.fromkeys(given, low)


def _behind(graph: Dataflow, names: Set[str]) -> set[str]:
    """The values with these names, and all values that they are computed from."""
    found = set(names)
    for name, node in reversed(graph.nodes):
        if name in found:
            found.update(node.inputs)
    return found


def _of_node(graph: Dataflow, node: Node, known: Mapping[str, Interval]) -> tuple[Interval, float]:
    """(interval of a node's elements, largest magnitude of the sums and products that it rounds)."""
    if isinstance(node, Map):
        return _of_expression(node.expression, known)
    if isinstance(node, Reduce | Contract):
        least, most = known[node.inputs[0]]
        if isinstance(node, Contract) and len(node.sources) == 2:
            least, most = _product((least, most), known[node.sources[1]])
        if (node.body if isinstance(node, Reduce) else node.operator.body) == "max":
            return (least, most), 0.0
        shape = graph.values[node.inputs[0]].shape
        count = math.prod(shape[axis] for axis in node.axes) if isinstance(node, Reduce) else _terms(node)
        return (min(count * least, least), max(count * most, most)), count * max(abs(least), abs(most))
    if isinstance(node, Gather):
        return known[node.table], 0.0
    parts = [known[name] for name in node.inputs] + ([(node.value, node.value)] if isinstance(node, Pad) else [])
    assert len(parts) == 1 or isinstance(node, Concat | Pad)
    return _hull(*parts), 0.0


def _terms(node: Contract) -> int:
    return node.operator.points // node.operator.output.size


def _of_expression(expression: Expression, known: Mapping[str, Interval]) -> tuple[Interval, float]:
    """(interval of an expression, largest magnitude of its sums and products)."""
    if isinstance(expression, Operand):
        return known[expression.name], 0.0
    if isinstance(expression, Constant):
        return (expression.value, expression.value), 0.0
    parts = [_of_expression(part, known) for part in expression.arguments]
    found = _OF.get(expression.function, lambda *_: _ANY)(*(interval for interval, _ in parts))
    own = max(map(abs, found)) if expression.function in ("add", "subtract", "multiply", "bits_and") else 0.0
    return found, max(own, *(size for _, size in parts))


def _hull(*parts: Interval) -> Interval:
    return min(least for least, _ in parts), max(most for _, most in parts)


def _product(one: Interval, other: Interval) -> Interval:
    ends = [0.0 if 0.0 in (a, b) else a * b for a in one for b in other]
    return min(ends), max(ends)


def _quotient(one: Interval, by: Interval) -> Interval:
    return _ANY if by[0] <= 0.0 <= by[1] else _product(one, (1.0 / by[1], 1.0 / by[0]))


def _size(one: Interval) -> Interval:
    return 0.0 if one[0] <= 0.0 <= one[1] else min(map(abs, one)), max(map(abs, one))


def _nearest(one: Interval) -> Interval:
    return tuple(round(end) if math.isfinite(end) else end for end in one)  # type: ignore[return-value]


def _left(one: Interval, by: Interval) -> Interval:
    """Interval of a remainder: it is not farther from 0 than either argument, and has the sign of the first."""
    most = min(_size(one)[1], _size(by)[1])
    return -most if one[0] < 0.0 else 0.0, most if one[1] > 0.0 else 0.0


def _bits(one: Interval, other: Interval) -> Interval:
    """Interval of bitwise and: a non-negative argument bounds the result; else a power of 2 beyond both arguments does."""
    tops = [most for least, most in (one, other) if least >= 0.0]
    if tops:
        return 0.0, min(tops)
    most = max(_size(one)[1], _size(other)[1])
    return (-(2.0 ** math.ceil(math.log2(most + 1.0))), most) if math.isfinite(most) else _ANY


_OF: Mapping[str, Callable[..., Interval]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]), "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": _product, "divide": _quotient, "negative": lambda a: (-a[1], -a[0]), "absolute": _size, "round": _nearest,
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])), "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "less": lambda a, b: (0.0, 1.0), "at_most": lambda a, b: (0.0, 1.0), "where": lambda condition, a, b: _hull(a, b),
    "fmod": _left, "bits_and": _bits,
}  # fmt: skip
"""Scalar function -> its interval from those of its arguments; other functions have no bounds."""
