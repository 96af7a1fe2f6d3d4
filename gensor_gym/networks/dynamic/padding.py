"""Numbers that elements outside of the smaller network's values have, as far as they are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand
from gensor_gym.dataflow.nodes import Broadcast, Map, Node, Reduce
from gensor_gym.dataflow.scalars import SCALARS

Pads = Mapping[str, float | None]
"""Name of an operand -> its number, None if it is not known."""


def pad_of(expression: Expression, given: Pads) -> float | None:
    """Return the value of an expression for the numbers `given` of its operands, None if it depends on unknown numbers."""
    if isinstance(expression, Operand):
        return given[expression.name]
    if isinstance(expression, Constant):
        return float(expression.value)
    parts = [pad_of(part, given) for part in expression.arguments]
    if expression.function == "where" and parts[0] is not None and not math.isnan(parts[0]):
        return parts[1] if parts[0] != 0 else parts[2]
    if any(part is None for part in parts):
        return None
    with np.errstate(all="ignore"):
        found = float(SCALARS[expression.function].value(*(np.asarray(part, np.float64) for part in parts)))
    return None if math.isnan(found) else found


def softmax_pad(name: str, axis: int, nodes: Mapping[str, Node], pads: Callable[[str], float | None]) -> float | None:
    """Return 0 if a map is a part of a softmax along an axis whose other scores are -inf, else None.

    The parts are exp(x - max(x)), its quotient by its sum, and where(c, quotient, 0) with the same c along the axis. If all
    elements of the smaller network are NaN, the number may be NaN too, which sums and products do not show.
    """
    node = nodes.get(name)
    if not isinstance(node, Map):
        return None
    match node.expression:
        case Call("exp", (Call("subtract", (Operand(x), Operand(most))),)):
            return 0.0 if pads(x) == -math.inf and _reduced(most, axis, nodes) == ("max", x) else None
        case Call("divide", (Operand(e), Operand(total))):
            is_sum = _reduced(total, axis, nodes) == ("sum", e)
            return softmax_pad(e, axis, nodes, pads) if is_sum and isinstance(nodes.get(e), Map) else None
        case Call("where", (condition, Operand(quotient), Constant(value))) if value == 0:
            names = [part.name for part in _operands(condition)]
            same = all(_reduced(one, axis, nodes) for one in names)
            return softmax_pad(quotient, axis, nodes, pads) if same else None
    return None


def _operands(expression: Expression) -> list[Operand]:
    if isinstance(expression, Call):
        return [one for part in expression.arguments for one in _operands(part)]
    return [expression] if isinstance(expression, Operand) else []


def _reduced(name: str, axis: int, nodes: Mapping[str, Node]) -> tuple[str, str] | None:
    """Return (reduction, source) if a value repeats along an axis what a reduction along this axis has made, else None."""
    node = nodes.get(name)
    if not isinstance(node, Broadcast):
        return None
    source = nodes.get(node.source)
    return (source.body, source.source) if isinstance(source, Reduce) and source.axes == (axis,) else None


def uniform(array: np.ndarray, shape: Sequence[int], axis: int) -> float | None:
    """Return the number that a constant has beyond `shape` along an axis, None if there are several."""
    part = array[tuple(slice(extent) if place != axis else slice(extent, None) for place, extent in enumerate(shape))]
    if not part.size or part.dtype.kind not in "fib":
        return None
    first = part.flat[0]
    return float(first) if bool((part == first).all()) else None
