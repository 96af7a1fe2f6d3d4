"""Types of integer nodes: int64, or float32 if it represents all their numbers exactly.

float32 has the fastest kernels. A node that computes integers from integers uses it if none of its numbers can exceed 2**24 in
magnitude for any inputs, and int64 otherwise. Nodes without an integer form, such as pooling, need bounded inputs, which every
call checks. The largest bound is found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

import numpy as np

from gensor_gym.dataflow.bounds import MOST_WHOLE
from gensor_gym.dataflow.graph import VIEWS, Dataflow
from gensor_gym.dataflow.whole import LEAST, MOST, is_computable
from gensor_gym.frontends.intervals import ANY, Interval, of_node

_RANGES: Mapping[str, Interval] = {
    "int64": (float(LEAST), float(MOST)), "int32": (-(2.0**31), 2.0**31 - 1.0), "bool": (0.0, 1.0),
}  # fmt: skip


def intervals(
    graph: Dataflow, constants: Mapping[str, np.ndarray], whole: Set[str], wraps: Mapping[str, str]
) -> dict[str, tuple[Interval, float]]:
    """Bound the integer nodes `whole`, and the values from which they are computed, for all inputs of their types.

    Return by name (interval, largest magnitude of the numbers that float32 would round). `wraps` maps an int32 value to the value
    whose lowest 32 bits it keeps.
    """
    behind = _behind(graph, whole & graph.makers.keys())
    given = [value for value in graph.inputs if value.name in behind]
    found = {value.name: (_of_input(graph, value.name, value.dtype, constants), 0.0) for value in given}
    known = {name: interval for name, (interval, _) in found.items()}
    for name, node in graph.nodes:
        if name not in behind:
            continue
        found[name] = of_node(graph, node, known)
        known[name] = _wrapped(found[name][0])
        if name in wraps and wraps[name] in known:
            known[name] = known[wraps[name]] if is_int32(known[wraps[name]]) else _RANGES["int32"]
    return {name: (known[name], size) for name, (_, size) in found.items()}


def _of_input(graph: Dataflow, name: str, dtype: str, constants: Mapping[str, np.ndarray]) -> Interval:
    array, rows = constants.get(name), graph.call_limits.get(name)
    if array is not None:
        numbers = array[~np.isnan(array)]
        return (float(numbers.min()), float(numbers.max())) if numbers.size else ANY
    return _RANGES.get(dtype, ANY) if rows is None else (0.0, rows - 1.0)  # calls check ids


def _wrapped(interval: Interval) -> Interval:
    """Return the interval of a value in int64: unchanged, or all of int64 if a number may leave its range and wrap around.

    Unbounded intervals are unchanged, because they do not belong to integers.
    """
    least, most = interval
    inside = least >= LEAST and most <= MOST
    return interval if inside or math.inf in (-least, most) else _RANGES["int64"]


def is_int32(interval: Interval) -> bool:
    """Return whether all numbers of an interval are in the range of int32."""
    return _RANGES["int32"][0] <= interval[0] and interval[1] <= _RANGES["int32"][1]


def computed_whole(
    graph: Dataflow, constants: Mapping[str, np.ndarray], whole: Set[str], wraps: Mapping[str, str]
) -> frozenset[str]:
    """Return the names of the integer nodes that need int64 because float32 may round their numbers, and that can compute in it.

    `whole` names the nodes that compute integers from integers.
    """
    sizes = intervals(graph, constants, whole, wraps)
    return frozenset(
        name for name, node in graph.nodes
        if name in whole and not isinstance(node, VIEWS) and not sizes[name][1] <= MOST_WHOLE and is_computable(node)
    )  # fmt: skip


def limits_of_whole(graph: Dataflow, constants: Mapping[str, np.ndarray], whole: Set[str]) -> dict[str, int]:
    """Find for each integer input the largest magnitude for which the nodes `whole` are exact in float32.

    Return these magnitudes by the input's name. ValueError names a node that may be inexact for any inputs.
    """
    whole = {name for name in whole if name not in graph.whole and not isinstance(graph.makers[name], VIEWS)}
    sizes = intervals(graph, constants, whole, {})
    if all(sizes[name][1] <= MOST_WHOLE for name in whole):
        return {}
    behind = _behind(graph, whole)
    given = [value.name for value in graph.inputs if value.name in behind and value.dtype in ("int32", "int64")]
    given = [name for name in given if name not in constants]
    nodes = [(name, node) for name, node in graph.nodes if name in behind]
    least = {value.name: sizes[value.name][0] for value in graph.inputs if value.name in behind}

    def fault(most: float) -> str:
        """Return the name of the first node that may be inexact for inputs of magnitude up to `most`; empty if there is none."""
        known = least | dict.fromkeys(given, (-most, most))
        for name, node in nodes:
            known[name], size = of_node(graph, node, known)
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
    """Return the names of the values `names` and of all values from which they are computed."""
    found = set(names)
    for name, node in reversed(graph.nodes):
        if name in found:
            found.update(node.inputs)
    return found
