"""Concatenations and slices without a kernel: values are computed or read in place, in a part of a larger value.

Each part must be contiguous in memory, so all axes before the joined or cut axis must have extent 1, as for channels at batch 1
or steps of a sequence. Images with channels last may be parts too: their pixels are then apart in memory, by the number of
channels of the whole image (`Tensor.pitch`). Convolutions and poolings, maps and reductions, and transpositions can compute and
read them; for others they are copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from gensor_gym.dataflow.expressions import Operand
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import HALVES, Broadcast, Concat, Contract, Map, Node, Reduce, Reshape, Slice, Transpose
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.images import IMAGES, order_of
from gensor_gym.operators.types import Operator

_OPERATORS = ("conv2d", "depthwise_conv2d", "avg_pool2d", "max_pool2d")


def is_leading(shape: Sequence[int], axis: int) -> bool:
    """Return whether the parts of a value along an axis are each contiguous in memory."""
    return all(extent == 1 for extent in shape[:axis])


def joins(graph: Dataflow) -> Mapping[str, tuple[str, int]]:
    """Return {value: (concatenation, offset in bytes)} for values that are computed directly in their part of a concatenation.

    All parts of the concatenation must qualify. A value has only one address, so these parts must be copied first
    (`with_parts_of_their_own`): a part of a second concatenation, an input, a broadcast, an integer and an output.
    """
    nodes, found = dict(graph.nodes), dict[str, tuple[str, int]]()
    returned = {_root(nodes, name) for name in graph.returns}
    for name, node in graph.nodes:
        if not isinstance(node, Concat) or not _is_in_place(graph, name, node):
            continue
        roots = [_root(nodes, source) for source in node.sources]
        if name not in graph.whole and len(set(roots)) == len(roots) and not any(
            _is_fixed(nodes, root) or root in returned or root in found or not _is_alike(graph, root, name)
            or not _has_room(graph, root, name, node) for root in roots
        ):  # fmt: skip
            place, leads = 0, is_leading(graph.values[name].shape, node.axis)
            for root in roots:
                found[root] = name, place
                value = graph.values[root]
                place += value.nbytes if leads else value.shape[-1] * value.nbytes // value.size
    return found


def cuts(graph: Dataflow) -> Mapping[str, tuple[str, int]]:
    """Return {slice: (value that contains it, offset there in bytes)} for slices that are read in place.

    Other slices are not read in place: outputs and parts of concatenations need separate memory, constants are cut once for all
    calls, integers are converted, and readers of a transposed or repeated value read its source.
    """
    nodes, found = dict(graph.nodes), dict[str, tuple[str, int]]()
    elsewhere = {_root(nodes, name) for name in graph.returns} | joins(graph).keys()
    for name, node in graph.nodes:
        if not isinstance(node, Slice) or name in elsewhere:
            continue
        source, root = graph.values[node.source], _root(nodes, node.source)
        is_float = source.dtype in (graph.dtype, *HALVES) and not source.constant
        is_there = root in found or not isinstance(nodes.get(root), Broadcast | Slice | Transpose)
        if is_float and is_there and is_leading(source.shape, node.axis):
            found[name] = root, node.start * math.prod(source.shape[node.axis + 1 :]) * (source.nbytes // source.size)
    return found


def with_parts_of_their_own(graph: Dataflow) -> tuple[list[tuple[str, Node]], dict[str, str]]:
    """Copy the parts of concatenations that cannot be computed in place; return (nodes with the copies, copy -> concatenation).

    A copy has the type of its concatenation. A concatenation that begins with all parts of an earlier one takes that one as its
    first part, as for the growing features of DenseNet.
    """
    nodes: dict[str, Node] = {}
    taken, returned = set[str](), {_root(dict(graph.nodes), name) for name in graph.returns}
    before: list[tuple[str, Concat]] = []
    copies: dict[str, str] = {}
    for name, node in graph.nodes:
        if isinstance(node, Concat) and _is_in_place(graph, name, node) and name not in graph.whole:
            whole = node
            node = Concat(tuple(_begun(node, before)), node.axis)
            sources: list[str] = []
            for source in node.sources:
                root = _root(nodes, source)
                fixed = root in taken or root in returned or _is_fixed(nodes, root)
                if fixed or root in graph.values and not (_is_alike(graph, root, name) and _has_room(graph, root, name, node)):
                    root = source = _fresh(f"{source}_copy", {*graph.values, *nodes})
                    nodes[source] = Map(Operand(node.sources[len(sources)]))
                    copies[source] = name
                taken.add(root)
                sources.append(source)
            node = Concat(tuple(sources), node.axis)
            before.append((name, whole))
        nodes[name] = node
    return list(nodes.items()), copies


def _is_in_place(graph: Dataflow, name: str, node: Concat) -> bool:
    """Return whether a concatenation's parts can be computed in it, if nothing about the parts speaks against it."""
    return is_leading(graph.values[name].shape, node.axis) or joins_channels(graph, name)


def _has_room(graph: Dataflow, root: str, name: str, node: Concat) -> bool:
    """Return whether what computes and reads a part knows of gaps between its rows, if there are any in the concatenation."""
    return is_leading(graph.values[name].shape, node.axis) or root in node.sources and may_be_apart(graph, root)


def _begun(node: Concat, before: Sequence[tuple[str, Concat]]) -> list[str]:
    """Return the parts of a concatenation. If it begins with all parts of earlier ones, the longest of these replaces them."""
    fits = [
        (len(one.sources), name) for name, one in before
        if one.axis == node.axis and len(one.sources) > 1 and node.sources[: len(one.sources)] == one.sources
    ]  # fmt: skip
    if not fits:
        return list(node.sources)
    count, name = max(fits)
    return [name, *node.sources[count:]]


def _root(nodes: Mapping[str, Node], name: str) -> str:
    """Return the value from which `name` is made by reshapes alone; `name` itself if it is no reshape."""
    while isinstance(node := nodes.get(name), Reshape):
        name = node.source
    return name


def _is_alike(graph: Dataflow, part: str, whole: str) -> bool:
    """Return whether a part has the type of the value that contains it; False for integers."""
    return part not in graph.whole and graph.values[part].dtype == graph.values[whole].dtype


def _is_fixed(nodes: Mapping[str, Node], root: str) -> bool:
    """Return whether a value cannot be computed at a chosen address, because it is an input or a broadcast."""
    return root not in nodes or isinstance(nodes[root], Broadcast)


def _fresh(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def joins_channels(graph: Dataflow, name: str) -> bool:
    """Return whether a value joins images of float32 along channels that are last, at least one of them an operator's result."""
    node, value = graph.makers.get(name), graph.values[name]
    if not isinstance(node, Concat) or len(value.shape) != len(IMAGES[1]) or node.axis != len(value.shape) - 1:
        return False
    types = {graph.values[one].dtype for one in (name, *node.sources)}
    made = (op for source in node.sources for op in _operators(graph, source, alone=False))
    return types == {"float32"} and not graph.whole.intersection((name, *node.sources)) and any(map(_makes_last, made))


def may_be_apart(graph: Dataflow, name: str) -> bool:
    """Return whether the pixels of an image can be apart in memory, because all that compute or read it support that."""
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


def _operators(graph: Dataflow, name: str, alone: bool = True) -> Iterator[Operator]:
    """Yield the operators of a value: its own, or those of maps' operands; with `alone`, of operands that nothing else reads.

    Only the latter may compute the value in their kernel.
    """
    waiting, seen = [name], {name}
    while waiting:
        node = graph.makers.get(waiting.pop())
        if isinstance(node, Contract):
            yield node.operator
        elif isinstance(node, Map):
            more = [one for one in node.inputs if one not in seen and not (alone and len(graph.readers[one]) > 1)]
            waiting += more
            seen.update(more)


def _makes_last(op: Operator) -> bool:
    order = order_of(op, "result" if op.name == "conv2d" else "image")
    return op.name in _OPERATORS and op.dtype == "float32" and order == IMAGES[1]


def check_pitches(computation: Operator | Dataflow, hardware: Hardware | None = None) -> None:
    """Raise ValueError if rows of a tensor are apart in memory, and the computation's kernels read and write whole tensors.

    Those are kernels of products inside fused operators, and all kernels of GPUs.
    """
    apart = [one.name for one in (*computation.inputs, *computation.outputs) if one.pitch]
    makers = computation.makers if isinstance(computation, Dataflow) else {}
    if apart and any(isinstance(node, Contract) for node in makers.values()):
        raise ValueError(f"{computation.name}: rows of {apart[0]} are apart in memory, expected none beside products of matrices")
    if apart and hardware is not None and hardware.kind == "gpu":
        raise ValueError(f"{computation.name}: rows of {apart[0]} are apart in memory, expected none on {hardware.name}")
