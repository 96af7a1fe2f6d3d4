"""Concatenations of the channels of images with channels last, whose parts are computed and read in place.

The pixels of such a part are apart in memory, by the number of channels of the whole image (`Tensor.pitch`). Convolutions and
poolings, maps and reductions, and transpositions can compute and read it; for others it must be copied.
"""

from __future__ import annotations

from collections.abc import Iterator

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Concat, Contract, Map, Node, Reduce, Transpose
from gensor_gym.operators.images import IMAGES, order_of
from gensor_gym.operators.types import Operator

_OPERATORS = ("conv2d", "depthwise_conv2d", "avg_pool2d", "max_pool2d")


def joins_channels(graph: Dataflow, name: str) -> bool:
    """Return whether a value joins images of float32 along channels that are last, of which an operator makes at least one."""
    node, value = graph.makers.get(name), graph.values[name]
    if not isinstance(node, Concat) or len(value.shape) != len(IMAGES[1]) or node.axis != len(value.shape) - 1:
        return False
    types = {graph.values[one].dtype for one in (name, *node.sources)}
    made = (op for source in node.sources for op in _operators(graph, source))
    return types == {"float32"} and not graph.whole.intersection((name, *node.sources)) and any(map(_makes_last, made))


def may_be_apart(graph: Dataflow, name: str) -> bool:
    """Return whether the pixels of an image can be apart in memory: whatever computes or reads it supports that."""
    node = graph.makers.get(name)
    makes = isinstance(node, Map | Transpose) or joins_channels(graph, name) or isinstance(node, Contract)
    if not makes or not all(map(_makes_last, _operators(graph, name))):
        return False
    return all(_reads(graph, reader, name) for reader in graph.readers[name])


def _reads(graph: Dataflow, reader: str, name: str) -> bool:
    node: Node = graph.makers[reader]
    if isinstance(node, Contract):
        op = node.operator
        is_image = name == node.sources[0] and name not in node.sources[1:]
        return is_image and op.name in _OPERATORS and op.dtype == "float32" and order_of(op, "image") == IMAGES[1]
    return isinstance(node, Map | Reduce | Transpose) or joins_channels(graph, reader)


def _operators(graph: Dataflow, name: str) -> Iterator[Operator]:
    """Yield the operators whose kernels may compute a value: its own, or those of maps' operands that nothing else reads."""
    waiting = [name]
    while waiting:
        node = graph.makers.get(waiting.pop())
        if isinstance(node, Contract):
            yield node.operator
        elif isinstance(node, Map):
            waiting += [one for one in node.inputs if len(graph.readers[one]) == 1]


def _makes_last(op: Operator) -> bool:
    order = order_of(op, "result" if op.name == "conv2d" else "image")
    return op.name in _OPERATORS and op.dtype == "float32" and order == IMAGES[1]
