"""Axes that one loop traverses: the axes of all values of a dataflow graph, grouped into classes."""

from __future__ import annotations

from dataclasses import dataclass, field

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Broadcast, Concat, Gather, Map, Pad, Reduce, Reshape, Scatter, Slice, Transpose

Place = tuple[str, int]
"""An axis of a value: (name of the value, index of the axis)."""


@dataclass
class AxisClasses:
    """Classes of the axes of all values of a dataflow graph.

    Axes of one class are traversed by the same loop. Axes of extent 1 are in no class, because their index is always 0. The
    classes are kept as a union-find.
    """

    graph: Dataflow
    _parents: dict[Place, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, node in self.graph.nodes:
            match node:
                case Map():
                    for operand in node.inputs:
                        self._join_all(operand, name)
                case Reduce(source, _, axes):
                    self._join_some(source, name, [axis for axis in range(self._rank(name)) if axis not in axes])
                case Broadcast(source, to):
                    shift = len(to) - self._rank(source)
                    for axis in range(self._rank(source)):
                        self._join((source, axis), (name, axis + shift))
                case Transpose(source, order):
                    for axis, old in enumerate(order):
                        self._join((source, old), (name, axis))
                case Slice(source, axis) | Pad(source, axis):
                    self._join_some(source, name, [other for other in range(self._rank(name)) if other != axis])
                case Concat(sources, axis):
                    for source in sources:
                        self._join_some(source, name, [other for other in range(self._rank(name)) if other != axis])
                case Gather(table, ids):
                    self._join_some(ids, name, list(range(self._rank(ids))))
                    for axis in range(1, self._rank(table)):
                        self._join((table, axis), (name, axis - 1 + self._rank(ids)))
                case Scatter(source, ids):
                    self._join_some(ids, source, list(range(self._rank(ids))))
                    for axis in range(1, self._rank(name)):
                        self._join((source, axis - 1 + self._rank(ids)), (name, axis))
                case Reshape(source):
                    self._join_reshaped(source, name)
        for _, node in self.graph.nodes:
            if isinstance(node, Concat) and len({self.graph.values[one].shape[node.axis] for one in node.sources}) == 1:
                self._join_apart([((node.sources[0], node.axis), (one, node.axis)) for one in node.sources[1:]])
            if isinstance(node, Reduce):
                self._join_repeats(node)

    def of(self, name: str) -> tuple[Place | None, ...]:
        """Return, for each axis of the value `name`, the representative axis of its class; None for an axis of extent 1."""
        shape = self.graph.values[name].shape
        return tuple(None if extent == 1 else self.find((name, axis)) for axis, extent in enumerate(shape))

    def find(self, place: Place) -> Place:
        """Return the axis that represents the class of the axis `place`."""
        while (parent := self._parents.get(place, place)) != place:
            place = parent
        return place

    def _rank(self, name: str) -> int:
        return len(self.graph.values[name].shape)

    def _join(self, one: Place, other: Place) -> None:
        if self.graph.values[one[0]].shape[one[1]] > 1 and self.graph.values[other[0]].shape[other[1]] > 1:
            self._parents[self.find(other)] = self.find(one)

    def _join_some(self, one: str, other: str, axes: list[int]) -> None:
        for axis in axes:
            self._join((one, axis), (other, axis))

    def _join_all(self, one: str, other: str) -> None:
        self._join_some(one, other, list(range(self._rank(one))))

    def _join_repeats(self, node: Reduce) -> None:
        """Put reduced axes and those along which values are repeated to the same extents into one class.

        So the loop that reduces rows of one value may be that which scales rows of another by the result.
        """
        shape = self.graph.values[node.source].shape
        for name, other in self.graph.nodes:
            if isinstance(other, Broadcast) and len(other.to) == len(shape):
                given = (1,) * (len(shape) - self._rank(other.source)) + self.graph.values[other.source].shape
                if all(given[axis] == 1 and other.to[axis] == shape[axis] for axis in node.axes):
                    self._join_apart([((node.source, axis), (name, axis)) for axis in node.axes])

    def _join_apart(self, pairs: list[tuple[Place, Place]]) -> None:
        """Put the axes of each pair into one class, unless two axes of a value would then be in one class."""
        before = dict(self._parents)
        for one, other in pairs:
            if self.find(one) != self.find(other):
                self._join(one, other)
        if self._parents != before and any(self.has_twice(name) for name in self.graph.values):
            self._parents = before

    def has_twice(self, name: str) -> bool:
        """Return whether two axes of the value `name` are in one class, as in a matrix that is added to its transpose."""
        places = [place for place in self.of(name) if place]
        return len(set(places)) < len(places)

    def _join_reshaped(self, source: str, name: str) -> None:
        """Put the axes of a reshape's source and result into common classes if the reshape only adds or drops axes of extent 1.

        After any other reshape, the result's axes are classes of their own.
        """
        old, new = self.graph.values[source].shape, self.graph.values[name].shape
        kept, made = ([axis for axis, extent in enumerate(shape) if extent > 1] for shape in (old, new))
        if [old[axis] for axis in kept] == [new[axis] for axis in made]:
            for one, other in zip(kept, made, strict=True):
                self._join((source, one), (name, other))


def merge(extents: list[int], steps: list[list[int]]) -> list[int]:
    """Merge adjacent axes if every tensor steps through both like one axis.

    Return the extents of the remaining axes. `steps` holds each tensor's strides and is changed in place.
    """
    extents, axis = list(extents), 0
    while axis + 1 < len(extents):
        if all(step[axis] == step[axis + 1] * extents[axis + 1] for step in steps):
            extents[axis : axis + 2] = [extents[axis] * extents[axis + 1]]
            for step in steps:
                del step[axis]
        else:
            axis += 1
    return extents
