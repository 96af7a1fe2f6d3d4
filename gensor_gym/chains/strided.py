"""Strided views of tensors, with which transposes, slices, reshapes and repetitions move no data.

An axis may need several strides, such as one axis over batch and heads. So it consists of parts, outermost first, each with an
extent and a stride.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gensor_gym.dataflow.expressions import Operand
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Broadcast, Map, Node, Reshape, Shape, Slice, Transpose

Part = tuple[int, int]
"""A part of an axis: (extent, stride). The stride is in elements."""
Axis = tuple[Part, ...]


@dataclass(frozen=True)
class Strided:
    """Positions of a value's elements in a tensor: `offset` plus the contribution of the index along each axis, in elements."""

    tensor: str
    offset: int
    axes: tuple[Axis, ...]

    def permuted(self, order: Sequence[int]) -> Strided:
        """Return the transposed view, whose axis i is axis `order[i]` of this view."""
        return Strided(self.tensor, self.offset, tuple(self.axes[axis] for axis in order))

    def part(self, axis: int, start: int, stop: int) -> Strided | None:
        """Return the view of elements `start` to `stop` (exclusive) of an axis.

        None if the axis has several parts and the range is not a whole number of steps of the outermost part.
        """
        (extent, stride), *inner = self.axes[axis] or ((1, 0),)
        step = math.prod(size for size, _ in inner)
        if start % step or stop % step:
            return None
        kept = merged(((stop - start) // step, stride), *inner)
        axes = (*self.axes[:axis], kept, *self.axes[axis + 1 :])
        return Strided(self.tensor, self.offset + start // step * stride, axes)

    def repeated(self, to: Shape) -> Strided:
        """Return the view broadcast to shape `to`: axes of extent 1 and new leading axes get stride 0."""
        new = len(to) - len(self.axes)
        sizes = [1] * new + [math.prod(size for size, _ in axis) for axis in self.axes]
        kept = ((),) * new + self.axes
        axes = (axis if size == extent else ((extent, 0),) for axis, size, extent in zip(kept, sizes, to, strict=True))
        return Strided(self.tensor, self.offset, tuple(axes))

    def reshaped(self, to: Shape) -> Strided | None:
        """Return the view of the same elements, in the same order, with shape `to`.

        The result is None if a part of an axis would be cut unevenly.
        """
        left = [part for axis in self.axes for part in axis]
        axes = [_taken(left, extent) for extent in reversed(to)]
        if None in axes:
            return None
        return Strided(self.tensor, self.offset, tuple(axis for axis in reversed(axes) if axis is not None))


def merged(*parts: Part) -> Axis:
    """Make an axis from (extent, stride) parts, merged into as few parts as possible. Parts of extent 1 are dropped."""
    found: list[Part] = []
    for extent, stride in parts:
        if extent == 1:
            continue
        if found and found[-1][1] == stride * extent:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return tuple(found)


def _taken(left: list[Part], extent: int) -> Axis | None:
    """Remove the innermost parts of `left` and return them as an axis of `extent` elements.

    The result is None if the parts do not divide evenly.
    """
    found: list[Part] = []
    while extent > 1:
        if not left:
            return None
        size, stride = left.pop()
        share = math.gcd(size, extent)
        if share not in (size, extent):
            return None
        if share < size:
            left.append((size // share, stride * share))
        found.insert(0, (share, stride))
        extent //= share
    return merged(*found)


def dense(tensor: str, shape: Shape) -> Strided:
    """Return the view of a whole row-major tensor of a given name and shape."""
    return Strided(tensor, 0, tuple(merged((extent, math.prod(shape[axis + 1 :]))) for axis, extent in enumerate(shape)))


def read_views(graph: Dataflow) -> dict[str, Strided]:
    """Return, by name, the views of all inputs and of all values that are a view or a copy of an input.

    A copy may round or convert to another data type.
    """
    found = {value.name: dense(value.name, value.shape) for value in graph.inputs}
    for name, node in graph.nodes:
        source = found.get(node.inputs[0])
        moved = None if source is None else _moved(source, node)
        if moved is not None:
            found[name] = moved
    return found


def _moved(source: Strided, node: Node) -> Strided | None:
    match node:
        case Transpose(_, order):
            return source.permuted(order)
        case Reshape(_, to):
            return source.reshaped(to)
        case Map(Operand()):
            return source
        case Broadcast(_, to):
            return source.repeated(to)
        case Slice(_, axis, start, stop):
            return source.part(axis, start, stop)
    return None


def written_view(graph: Dataflow) -> tuple[str, Strided]:
    """Return (name, view) of the value that a graph writes, and the order in which it is written.

    If the only output rearranges another value, the name is that of the other value. ValueError for several outputs, or for an
    order that strides cannot express.
    """
    if len(graph.returns) != 1:
        raise ValueError(f"{graph.name}: {len(graph.returns)} outputs, expected one of a chain of products")
    (name,), nodes = graph.returns, dict(graph.nodes)
    found: Strided | None = dense(name, graph.values[name].shape)
    while found is not None and isinstance(node := nodes.get(name), Transpose | Reshape):
        shape = graph.values[node.source].shape
        if isinstance(node, Transpose):
            found = found.permuted([node.order.index(axis) for axis in range(len(node.order))])
        else:
            found = found.reshaped(shape)
        name = node.source
    if found is None:
        raise ValueError(f"{graph.name}: {name} is written in an order that no strides can say")
    return name, found


def refined(axes: Sequence[Axis]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | None:
    """Cut axes of equal extent into common parts.

    Return (extents of the parts, strides of each axis along the parts); None if that is impossible.
    """
    left = [list(axis) for axis in axes]
    extents: list[int] = []
    strides: list[list[int]] = [[] for _ in axes]
    while any(left):
        if not all(left):
            return None
        share = min(parts[-1][0] for parts in left)
        if any(parts[-1][0] % share for parts in left):
            return None
        extents.insert(0, share)
        for parts, found in zip(left, strides, strict=True):
            size, stride = parts.pop()
            found.insert(0, stride)
            if size > share:
                parts.append((size // share, stride * share))
    return tuple(extents), tuple(map(tuple, strides))
