"""Views of tensors for data movement (transposes, slices, concatenations) at the edges of a dataflow graph.

Such nodes need no kernel: before any computation, they become an input that is read in another order. After the last computation,
they become an output that is written in another order.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import (
    Broadcast,
    Concat,
    Contract,
    Gather,
    Map,
    Node,
    Pad,
    Reduce,
    Reshape,
    Scatter,
    Slice,
    Transpose,
    Value,
)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """Ids that select rows of a table with `count` rows, which are read, as in an embedding, or written by a scatter.

    `ids` is the view of the ids; `step * id` is added to the position of an element.
    """

    ids: View
    """View of the ids, broadcast to the shape of the gathered value: for each element, the id of its row."""
    step: int
    count: int
    scatter: Scatter | None = None
    """The node that writes the rows; None if they are read."""


@dataclass(frozen=True)
class View:
    """Positions of a value's elements in a tensor in DRAM.

    The element with indices i is at `offset` plus the sum of `strides[a] * i[a]`.
    """

    tensor: str
    offset: int
    shape: Shape
    strides: tuple[int, ...]
    rows: Rows | None = None
    """Ids that select the rows, if the value is gathered from a table; else None."""

    @property
    def is_dense(self) -> bool:
        """Whether the view is a whole row-major tensor."""
        return self.offset == 0 and self.rows is None and self.strides == dense_strides(self.shape)

    def permuted(self, order: tuple[int, ...]) -> View:
        """Return the transposed view, whose axis i is axis `order[i]` of this view."""
        shape, strides = tuple(self.shape[a] for a in order), tuple(self.strides[a] for a in order)
        return View(self.tensor, self.offset, shape, strides, self._rows(lambda ids: ids.permuted(order)))

    def part(self, axis: int, start: int, extent: int) -> View:
        """Return the view of `extent` elements along an axis, from index `start` on."""
        shape = (*self.shape[:axis], extent, *self.shape[axis + 1 :])
        rows = self._rows(lambda ids: ids.part(axis, start, extent))
        return View(self.tensor, self.offset + start * self.strides[axis], shape, self.strides, rows)

    def repeated(self, to: Shape) -> View:
        """Return the view broadcast to shape `to`: elements are repeated along axes of extent 1 and along new leading axes."""
        new = len(to) - len(self.shape)
        kept = tuple(0 if old == 1 else stride for old, stride in zip(self.shape, self.strides, strict=True))
        return View(self.tensor, self.offset, to, (0,) * new + kept, self._rows(lambda ids: ids.repeated(to)))

    def reshaped(self, to: Shape) -> View | None:
        """Return the view of the same elements, in the same order, with shape `to`; None if strides cannot express it."""
        if [extent for extent in self.shape if extent > 1] == [extent for extent in to if extent > 1]:
            return dataclasses.replace(self._spread(to), rows=self._rows(lambda ids: ids._spread(to)))
        strides = _cut(self.shape, self.strides, to) if self.rows is None else None
        return None if strides is None else View(self.tensor, self.offset, to, strides)

    def _spread(self, to: Shape) -> View:
        strides = iter(stride for extent, stride in zip(self.shape, self.strides, strict=True) if extent > 1)
        return View(self.tensor, self.offset, to, tuple(next(strides) if extent > 1 else 0 for extent in to))

    def gathered(self, ids: View, scatter: Scatter | None = None) -> View:
        """Return the view of the rows of this table that `ids` selects, with the shape of `ids` in place of the first axis.

        If a node writes the rows, it is `scatter`.
        """
        of_row, of_ids = (0,) * (len(self.shape) - 1), (0,) * len(ids.shape)
        shape = (*ids.shape, *self.shape[1:])
        rows = Rows(View(ids.tensor, ids.offset, shape, (*ids.strides, *of_row)), self.strides[0], self.shape[0], scatter)
        return View(self.tensor, self.offset, shape, (*of_ids, *self.strides[1:]), rows)

    def _rows(self, move: Callable[[View], View]) -> Rows | None:
        return None if self.rows is None else dataclasses.replace(self.rows, ids=move(self.rows.ids))


def _cut(shape: Shape, strides: tuple[int, ...], to: Shape) -> tuple[int, ...] | None:
    """Return the strides of the same elements in shape `to`; None if an axis would combine two axes of different strides."""
    groups: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if groups and extent > 1 and groups[-1][1] == extent * stride:
            groups[-1] = groups[-1][0] * extent, stride
        elif extent > 1:
            groups.append((extent, stride))
    found, (room, step) = list[int](), groups.pop() if groups else (1, 0)
    for extent in reversed(to):
        if room == 1 and groups:
            room, step = groups.pop()
        if room % extent:
            return None
        found.append(step if extent > 1 else 0)
        room, step = room // extent, step * extent
    return tuple(reversed(found))


def whole(value: Value) -> View:
    """Return the view of a whole row-major tensor."""
    return View(value.name, 0, value.shape, dense_strides((*value.shape[:-1], value.pitch) if value.pitch else value.shape))


def dense_strides(shape: Shape) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def input_views(graph: Dataflow) -> dict[str, View]:
    """Return, by name, the views of all inputs and of all values that only rearrange an input."""
    found = {value.name: whole(value) for value in graph.inputs}
    for name, node in graph.nodes:
        source = found.get(node.inputs[0])
        moved = None if source is None else _moved(source, node, found)
        if moved is not None:
            found[name] = moved
    return found


def _moved(source: View, node: Node, known: Mapping[str, View]) -> View | None:
    match node:
        case Transpose(_, order):
            return source.permuted(order)
        case Reshape(_, to):
            return source.reshaped(to)
        case Slice(_, axis, start, stop):
            return source.part(axis, start, stop - start)
        case Broadcast(_, to):
            return source.repeated(to)
        case Gather(_, ids) if source.rows is None and ids in known and known[ids].rows is None:
            return source.gathered(known[ids])
        case Gather() | Scatter() | Map() | Reduce() | Concat() | Pad() | Contract():
            return None


def output_views(graph: Dataflow, inputs: Mapping[str, View]) -> list[tuple[str, View]]:
    """Return (name, view) of every value that is stored: an output, or the values that an output only rearranges.

    The view says where the value's elements are written. `inputs` are the views of `input_views`.
    """
    found: list[tuple[str, View]] = []
    nodes = dict(graph.nodes)

    def follow(name: str, view: View) -> None:
        match nodes.get(name):
            case Transpose(source, order):
                follow(source, view.permuted(tuple(order.index(axis) for axis in range(len(order)))))
            case Reshape(source) if (turned := view.reshaped(graph.values[source].shape)) is not None:
                follow(source, turned)
            case Scatter(source, ids) as node if view.is_dense and ids in inputs and inputs[ids].rows is None:
                found.append((source, view.gathered(inputs[ids], node)))
            case Concat(sources, axis):
                start = 0
                for source in sources:
                    extent = graph.values[source].shape[axis]
                    follow(source, view.part(axis, start, extent))
                    start += extent
            case _:
                found.append((name, view))

    for name in graph.returns:
        follow(name, whole(graph.values[name]))
    return found
