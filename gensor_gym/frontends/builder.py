"""A network under construction: nodes one after another, with the names and shapes that they have."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from keyword import iskeyword

import numpy as np

from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand, operands, renamed
from gensor_gym.dataflow.nodes import Broadcast, Contract, Map, Node, Reduce, Reshape, Shape, Transpose, Value
from gensor_gym.frontends.whole import limits_of_whole
from gensor_gym.networks.network import Network, needed
from gensor_gym.operators.types import Operator


class Builder:
    """Interface of front-ends. Values are known by name; every method returns the name of its result."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.shapes: dict[str, Shape] = {}
        self.origin = ""
        """The operation that nodes are made for from now on."""
        self.reads: Mapping[str, str] = {}
        """Data types that the operation's tensors have there, by name: bools and whole numbers are float32 numbers here."""
        self.is_whole = False
        """Whether the operation's results are whole numbers, made of whole numbers."""
        self.whole: set[str] = set()
        """Values that operations of that kind are made of."""
        self.given: list[Value] = []
        """Inputs and constants so far."""
        self._made: dict[str, Node] = {}
        self._constants: dict[str, np.ndarray] = {}
        self._origins: dict[str, str] = {}
        self._known: dict[Node, str] = {}
        self._numbers: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> str:
        """A tensor that every call is given."""
        return self._given(Value(self._fresh(name), tuple(shape), dtype))

    def constant(self, name: str, array: np.ndarray) -> str:
        """A tensor that is the same at every call."""
        made = self._given(Value(self._fresh(name), array.shape, "float32", constant=True))
        self._constants[made] = np.array(array, np.float32, order="C")  # of no axes, too
        return made

    def _given(self, value: Value) -> str:
        self.given.append(value)
        self.shapes[value.name] = value.shape
        return value.name

    def given_as(self, name: str) -> str | None:
        """The data type of an input or constant, or of a reshape of one; None for a computed value."""
        root = self._root(name)
        return next((value.dtype for value in self.given if value.name == root), None)

    def add(self, node: Node, name: str = "v") -> str:
        """Add a node, or return an equal existing one. ValueError for shapes that do not fit."""
        if (known := self._known.get(node)) is not None:
            self.whole.update([known] if self.is_whole else [])
            return known
        made = self._fresh(name)
        self.whole.update([made] if self.is_whole else [])
        self.shapes[made] = node.shape(*(self.shapes[one] for one in node.inputs))
        self._made[made] = node
        self._origins[made] = self.origin
        self._known[node] = made
        return made

    def map(self, expression: Expression, name: str = "v") -> str:
        """An expression of values, which are repeated to one shape as NumPy does."""
        names = operands(expression)
        shape = np.broadcast_shapes(*(self.shapes[one] for one in names))
        return self.add(Map(renamed(expression, {one: self.repeat(one, shape) for one in names})), name)

    def call(self, function: str, *arguments: Expression | str | float) -> str:
        """A map of one scalar function (`dataflow.scalars`) of values and numbers."""
        return self.map(of(function, *arguments), function)

    def repeat(self, name: str, shape: Sequence[int]) -> str:
        """The value repeated to a shape; itself where it has that."""
        return name if self.shapes[name] == tuple(shape) else self.add(Broadcast(name, tuple(shape)), f"{name}_wide")

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """The same elements in the same order; one extent may be -1."""
        size, to = math.prod(self.shapes[name]), list(shape)
        if -1 in to:
            to[to.index(-1)] = size // max(1, -math.prod(to))
        if self.shapes[name] == tuple(to):
            return name
        if isinstance(self._made.get(self._root(name)), Broadcast) and not _same_axes(self.shapes[name], to):
            name = self.copy(name)  # what is repeated does not lie so that one stride could go along two axes
        return self.add(Reshape(name, tuple(to)), f"{name}_shaped")

    def transpose(self, name: str, order: Sequence[int]) -> str:
        """Axes in another order; one after another goes to its place, in memory, where no kernel has that many loops."""
        order = tuple(axis % len(self.shapes[name]) for axis in order)
        if order == tuple(range(len(order))):
            return name
        left = [axis for axis in order if self.shapes[name][axis] > 1]
        apart = 1 + sum(not _are_neighbours(self.shapes[name], one, other) for one, other in pairwise(left))
        if apart <= MOST_LOOPS:
            return self.add(Transpose(name, order), f"{name}_turned")
        there = list(range(len(order)))
        for place, axis in enumerate(order):
            at = there.index(axis)
            if at != place:
                there.insert(place, there.pop(at))
                step = [*range(place), at, *(other for other in range(place, len(order)) if other != at)]
                name = self.copy(self.add(Transpose(name, tuple(step)), f"{name}_turned"))
        return name

    def known(self, name: str) -> np.ndarray | None:
        """The numbers of a constant; None for a value that is computed at each call."""
        return self._constants.get(name)

    def reduce(self, name: str, body: str, axes: Sequence[int]) -> str:
        """Sums, maxima or minima along axes, which stay with extent 1: neighbouring axes at once, the last first."""
        if body == "min":
            return self.call("negative", self.reduce(self.call("negative", name), "max", axes))
        left = sorted({axis % len(self.shapes[name]) for axis in axes if self.shapes[name]})
        while left:
            first = next(place for place in range(len(left)) if left[-1] - left[place] == len(left) - 1 - place)
            name = self.add(Reduce(name, body, tuple(left[first:])), body)  # type: ignore[arg-type]
            del left[first:]
        return name

    def mean(self, name: str, axes: Sequence[int]) -> str:
        """Means along axes, which stay with extent 1."""
        count = math.prod(self.shapes[name][axis] for axis in axes if self.shapes[name])
        return self.call("multiply", self.reduce(name, "sum", axes), 1.0 / count)

    def contract(self, operator: Operator, *sources: str) -> str:
        """An operator of its own."""
        return self.add(Contract(operator, tuple(map(self.dense, sources))), operator.name)

    def dense(self, name: str) -> str:
        """The value as floats in memory of its own shape: a copy where a smaller one is repeated, and of whole numbers."""
        node = self._made.get(name)
        if any(value.name == name and value.dtype != "float32" for value in self.given):
            return self.copy(name)
        if isinstance(node, Reshape):
            return self.reshape(self.dense(node.source), node.to)
        return self.copy(name) if isinstance(node, Broadcast) else name

    def copy(self, name: str) -> str:
        """The same elements in memory of their own."""
        return self.map(Operand(name), f"{name}_copy")

    def network(self, name: str, returns: Sequence[str]) -> Network:
        """The built network, without unread constants. Each output has its own memory."""
        roots: list[str] = []
        for place, one in enumerate(returns := list(map(self.dense, returns))):
            root = self._root(one)
            while root not in self._made or root in roots:  # a copy of a copy is another value
                returns[place] = root = one = self.copy(one)
            roots.append(root)
        graph = needed(name, self.given, list(self._made.items()), returns)
        constants = {value.name: self._constants[value.name] for value in graph.inputs if value.constant}
        asked = [value for value in self.given if not value.constant]
        unread = {number: value for number, value in enumerate(asked) if value not in graph.inputs}
        limits = limits_of_whole(graph, constants, self.whole & graph.makers.keys())
        return Network(graph, constants, {made: self._origins[made] for made, _ in graph.nodes}, unread, limits=limits)

    def _root(self, name: str) -> str:
        """The value that a reshape is one of."""
        while isinstance(node := self._made.get(name), Reshape):
            name = node.source
        return name

    def _fresh(self, name: str) -> str:
        """An identifier near to `name` that is not taken."""
        plain = re.sub(r"\W", "_", name).strip("_") or "v"
        plain = f"v{plain}" if plain[0].isdigit() or iskeyword(plain) or plain == "inf" else plain
        found = plain
        while found in self.shapes:
            number = self._numbers[plain] = self._numbers.get(plain, 1) + 1
            found = f"{plain}_{number}"
        return found


MOST_LOOPS = 5
"""Over rows and columns of a kernel: axes that a transpose does not keep side by side are loops of their own."""


def _are_neighbours(shape: Shape, one: int, other: int) -> bool:
    """Whether an axis follows another, but for axes of extent 1."""
    return one < other and all(shape[between] == 1 for between in range(one + 1, other))


def _same_axes(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes differ only by axes of extent 1."""
    return [extent for extent in one if extent > 1] == [extent for extent in other if extent > 1]


def of(function: str, *arguments: Expression | str | float) -> Call:
    """A scalar function of values by name, numbers and expressions."""
    return Call(function, tuple(_part(one) for one in arguments))


def _part(given: Expression | str | float) -> Expression:
    if isinstance(given, str):
        return Operand(given)
    return Constant(float(given)) if isinstance(given, int | float) else given
