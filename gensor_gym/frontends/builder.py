"""Builder of networks: it adds named nodes with shapes, in order."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from keyword import iskeyword
from typing import Any

import numpy as np

from gensor_gym.dataflow.bounds import MOST_WHOLE
from gensor_gym.dataflow.expressions import MOST_IN_FLOAT64, Call, Constant, Expression, Operand, operands, renamed
from gensor_gym.dataflow.graph import VIEWS, Dataflow
from gensor_gym.dataflow.nodes import (
    HALVES,
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
    Shape,
    Slice,
    Transpose,
    Value,
)  # fmt: skip
from gensor_gym.frontends.whole import computed_whole, intervals, is_int32, limits_of_whole
from gensor_gym.networks.network import Network, needed
from gensor_gym.operators.inputs import encode
from gensor_gym.operators.text import with_arguments
from gensor_gym.operators.types import Operator


def copied(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return a row-major copy of an array in a data type."""
    return np.array(array, dtype, order="C")  # an array, even without axes


class Builder:
    """Builds a network node by node. Each value has a name; a method that adds a value returns its name."""

    def __init__(self) -> None:
        self.shapes: dict[str, Shape] = {}
        self.origin = ""
        """Name of the torch operation to which added nodes belong."""
        self.reads: Mapping[str, str] = {}
        """Name of a value that the current operation reads -> its type in the module. Kernels may compute in another type."""
        self.is_whole = False
        """Whether the current operation reads and computes only integers."""
        self.half = ""
        """The 16-bit type of all floats that the current operation reads and computes; empty if there is none."""
        self.whole: set[str] = set()
        """Names of the values that were added by operations from integers to integers."""
        self.given: list[Value] = []
        """Inputs and constants in the order in which they were added."""
        self._made: dict[str, Node] = {}
        self._constants: dict[str, np.ndarray] = {}
        self._origins: dict[str, str] = {}
        self._known: dict[tuple[Node, bool, str], str] = {}
        self._rounded: dict[str, str] = {}
        """Name of a map or reduction that is rounded when stored -> the type to which it is rounded (`Dataflow.rounded`)."""
        self.quantized: dict[str, Any] = {}
        """Name of a dequantised value -> the int8 numbers from which it was computed (`aten.quantized.Quantized`)."""
        self.integer: Callable[[Builder, Operator, tuple[str, ...]], str | None] = lambda *_: None
        """Function that adds a product of dequantised values in integers, or returns None."""
        self.copied = copied
        self._joined: dict[str, str] = {}
        """Name of a concatenation -> its 16-bit type; empty for other types."""
        self._wraps: dict[str, str] = {}
        """Name of an int32 value -> the value whose lowest 32 bits it keeps."""
        self._numbers: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> str:
        """Add an input, a tensor that every call of the network passes. Return its name."""
        return self._given(Value(self._fresh(name), tuple(shape), dtype))

    def constant(self, name: str, array: np.ndarray, half: str = "") -> str:
        """Add a constant, a tensor that is equal at every call. Return its name.

        Its type is `half` if given, such as a 16-bit type; else int64 if an integer exceeds 2**24; else float32.
        """
        far = array.dtype.kind == "i" and array.size > 0 and max(-int(array.min()), int(array.max())) > MOST_WHOLE
        dtype = "int64" if far else "float32"
        made = self._given(Value(self._fresh(name), array.shape, half or dtype, constant=True))
        self._constants[made] = self.copied(array, dtype)
        return made

    def _given(self, value: Value) -> str:
        self.given.append(value)
        self.shapes[value.name] = value.shape
        return value.name

    def given_as(self, name: str) -> str | None:
        """Return the data type of an input or constant, also of a reshape of it; None for a computed value."""
        root = self._root(name)
        return next((value.dtype for value in self.given if value.name == root), None)

    def add(self, node: Node, name: str = "v") -> str:
        """Add a node; return its name, or the name of an equal node. ValueError for shapes that do not fit."""
        key = node, self.is_whole and not isinstance(node, VIEWS), self.half
        if (known := self._known.get(key)) is not None:
            return known
        made = self._fresh(name)
        self.whole.update([made] if self.is_whole else [])
        self.shapes[made] = node.shape(*(self.shapes[one] for one in node.inputs))
        self._made[made] = node
        self._origins[made] = self.origin
        self._known[key] = made
        return made

    def map(self, expression: Expression, name: str = "v") -> str:
        """Add a map: an elementwise expression of values, which are broadcast to one shape as in NumPy. Return its name."""
        names = operands(expression)
        shape = np.broadcast_shapes(*(self.shapes[one] for one in names))
        return self.add(Map(renamed(expression, {one: self.repeat(one, shape) for one in names})), name)

    def call(self, function: str, *arguments: Expression | str | float) -> str:
        """Add a map of one scalar function (`dataflow.scalars`) of values, numbers and expressions. Return its name."""
        return self.map(of(function, *arguments), function)

    def repeat(self, name: str, shape: Sequence[int]) -> str:
        """Broadcast a value to a shape. Return the result's name, or `name` if the value has that shape."""
        return name if self.shapes[name] == tuple(shape) else self.add(Broadcast(name, tuple(shape)), f"{name}_wide")

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """Reshape a value: the same elements in the same order. One extent may be -1. Return the result's name."""
        size, to = math.prod(self.shapes[name]), list(shape)
        if -1 in to:
            to[to.index(-1)] = size // max(1, -math.prod(to))
        if self.shapes[name] == tuple(to):
            return name
        if isinstance(self._made.get(self._root(name)), Broadcast) and not _same_axes(self.shapes[name], to):
            name = self.copy(name)  # a repeated value has no single stride along two merged axes
        return self.add(Reshape(name, tuple(to)), f"{name}_shaped")

    def transpose(self, name: str, order: Sequence[int]) -> str:
        """Transpose a value: its axes in another order. Return the result's name.

        If one kernel would need too many loops, a copy moves each axis.
        """
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
        """Return the elements of a constant; None for a value that may change from call to call."""
        return self._constants.get(name)

    def made(self, name: str) -> Node | None:
        """Return the node that computes a value; None for inputs and constants."""
        return self._made.get(name)

    def quantize(self, name: str, source: str) -> None:
        """Mark `name`, a map of `source`, as stored in int8, so that the kernel that computes `source` may compute it too."""
        self._rounded[name] = "int8"
        if isinstance(self._made.get(root := self._root(source)), Map | Reduce):
            self._origins[name] = self._origins[root]

    def reduce(self, name: str, body: str, axes: Sequence[int]) -> str:
        """Compute sums, maxima or minima along axes, which keep extent 1. Return the result's name.

        One node reduces neighbouring axes, the last first.
        """
        if body == "min":
            return self.turned(self.reduce(self.turned(name), "max", axes))
        left = sorted({axis % len(self.shapes[name]) for axis in axes if self.shapes[name]})
        while left:
            first = next(place for place in range(len(left)) if left[-1] - left[place] == len(left) - 1 - place)
            name = self.add(Reduce(name, body, tuple(left[first:])), body)  # type: ignore[arg-type]
            del left[first:]
        return name

    def turned(self, name: str) -> str:
        """Return the name of a value that sorts in reverse: -x, or for integers -1 - x.

        The latter exists for the least integer too.
        """
        return self.call("subtract", -1.0, name) if self.is_whole else self.call("negative", name)

    def mean(self, name: str, axes: Sequence[int]) -> str:
        """Compute means along axes, which keep extent 1. Return the result's name. ValueError for integers."""
        if self.is_whole:
            raise ValueError("means of integers: expected float32")
        count = math.prod(self.shapes[name][axis] for axis in axes if self.shapes[name])
        return self.call("multiply", self.reduce(name, "sum", axes), 1.0 / count)

    def contract(self, operator: Operator, *sources: str) -> str:
        """Add an operator, such as a product, of values in memory.

        A product of integers becomes a sum of elementwise products. ValueError for means of integers.
        """
        if self.is_whole and operator.name.startswith("avg_pool"):
            raise ValueError("means of integers: expected float32")
        if self.is_whole and operator.name in _PRODUCTS and operator.points <= MOST_MULTIPLIED:
            return _PRODUCTS[operator.name](self, *sources)
        if self.quantized and (made := self.integer(self, operator, sources)) is not None:
            return made
        if self.half and any(self.half_of(one) for one in sources):
            operator, sources = with_arguments(operator, dtype=self.half), tuple(self.halved(one, self.half) for one in sources)
        elif any(self.half_of(one) for one in sources):
            sources = tuple(self.map(Operand(one), f"{one}_float") if self.half_of(one) else one for one in sources)
        return self.add(Contract(operator, tuple(map(self.dense, sources))), operator.name)

    def half_of(self, name: str) -> str:
        """Return the 16-bit type of a value; empty for other types."""
        while isinstance(node := self._made.get(name), Broadcast | Reshape | Slice | Transpose | Pad | Gather):
            name = node.table if isinstance(node, Gather) else node.source
        if isinstance(node, Map | Reduce):
            return self._rounded.get(name, "")
        if isinstance(node, Concat):
            if name not in self._joined:  # cached, because joins may be joined again and again
                moved = {self.half_of(one) for one in node.sources}
                self._joined[name] = moved.pop() if len(moved) == 1 else ""
            return self._joined[name]
        dtype = self.given_as(name) if node is None else "" if isinstance(node, Scatter) else node.operator.dtype
        return dtype if dtype in HALVES else ""

    def halved(self, name: str, half: str) -> str:
        """Round a value to a 16-bit type. Return the name of the rounded value.

        It is `name` if the torch operation that is being converted computes the value, else usually a copy.
        """
        if self.half_of(name) == half:
            return name
        node = self._made.get(name)
        if (array := self._constants.get(name)) is not None:
            return self.constant(name, array, half)
        if isinstance(node, Broadcast | Reshape | Slice | Transpose):
            return self.add(dataclasses.replace(node, source=self.halved(node.source, half)), name)
        is_own = isinstance(node, Map | Reduce) and self._origins[name] == self.origin and name not in self._rounded
        was, self.half = self.half, half  # in another type, an equal node is another value
        made = name if is_own and was == half else self.map(Operand(name), f"{name}_{half}")
        self.half, self._rounded[made] = was, half
        return made

    def wrapped(self, name: str) -> str:
        """Reduce computed integers to their lowest 32 bits, as torch's int32 wraps around.

        Return the result's name. Integers that are only read or moved are unchanged.
        """
        if not isinstance(self._made.get(self._root(name)), Map | Reduce):
            return name
        above = of("divide", of("add", name, 2.0**31), 2.0**32)
        made = self.map(of("subtract", name, of("multiply", 2.0**32, above)), "wrapped")
        self._wraps[made] = name
        return made

    def dense(self, name: str) -> str:
        """Return the name of a value as floats that are all stored in memory.

        A broadcast value or an input of integers is copied.
        """
        node = self._made.get(name)
        if any(value.name == name and value.dtype not in ("float32", *HALVES) for value in self.given):
            return self.copy(name)
        if isinstance(node, Reshape):
            return self.reshape(self.dense(node.source), node.to)
        return self.copy(name) if isinstance(node, Broadcast) else name

    def copy(self, name: str) -> str:
        """Add a copy of a value, in memory of its own, with the same type. Return its name."""
        was, self.is_whole = self.is_whole, self.is_whole or self._root(name) in self.whole
        made = self.map(Operand(name), f"{name}_copy")
        self.is_whole = was
        self._rounded.update({made: half} if (half := self.half_of(name)) else {})
        return made

    def network(self, name: str, returns: Sequence[str]) -> Network:
        """Build the network with the outputs `returns`, without unread constants. Each output has its own memory."""
        roots: list[str] = []
        for place, one in enumerate(returns := list(map(self.dense, returns))):
            root = self._root(one)
            while root not in self._made or root in roots:  # until it is a new value; a copy of a copy is a value of its own
                returns[place] = root = one = self.copy(one)
            roots.append(root)
        graph = self._typed(needed(name, self.given, list(self._made.items()), returns, rounded=self._rounded.items()))
        constants = {value.name: encode(self._constants[value.name], value.dtype) for value in graph.inputs if value.constant}
        asked = [value for value in self.given if not value.constant]
        unread = {number: value for number, value in enumerate(asked) if value not in graph.inputs}
        limits = limits_of_whole(graph, constants, self.whole & graph.makers.keys())
        return Network(graph, constants, {made: self._origins[made] for made, _ in graph.nodes}, unread, limits=limits)

    def _typed(self, graph: Dataflow) -> Dataflow:
        """Determine which integer nodes compute in int64, and remove the wrap-around of values that always fit 32 bits.

        Return the graph with these changes.
        """
        wraps = {name: source for name, source in self._wraps.items() if name in graph.makers}
        known, nodes = intervals(graph, self._constants, self.whole, wraps), list[tuple[str, Node]]()
        names = {name: name for name in graph.values}
        returned = {self._root(name) for name in graph.returns}
        for name, node in graph.nodes:
            if name not in wraps or not is_int32(known[wraps[name]][0]):
                nodes.append((name, node.reading(names)))
            elif name in returned:
                nodes.append((name, Map(Operand(names[wraps[name]]))))
            else:
                names[name] = names[wraps[name]]
        graph = needed(graph.name, graph.inputs, nodes, graph.returns, rounded=graph.rounded)
        whole = computed_whole(graph, self._constants, self.whole, wraps)
        return dataclasses.replace(graph, nodes=tuple(self._with_floats(graph, whole)), whole=whole)

    def _with_floats(self, graph: Dataflow, whole: Set[str]) -> Iterator[tuple[str, Node]]:
        """Yield the graph's nodes, and before each product a float32 copy of every int64 value that it reads.

        `whole` names the int64 nodes.
        """
        for name, node in graph.nodes:
            if isinstance(node, Contract) and (far := [one for one in node.sources if graph.behind(one)[-1] in whole]):
                copies = {one: self._fresh(f"{one}_float") for one in far}
                for one, copy in copies.items():
                    self.shapes[copy], self._origins[copy] = self.shapes[one], self._origins[name]
                    yield copy, Map(Operand(one))
                node = node.reading({one: copies.get(one, one) for one in node.sources})
            yield name, node

    def _root(self, name: str) -> str:
        while isinstance(node := self._made.get(name), Reshape):
            name = node.source
        return name

    def _fresh(self, name: str) -> str:
        plain = re.sub(r"\W", "_", name).strip("_") or "v"
        plain = f"v{plain}" if plain[0].isdigit() or iskeyword(plain) or plain == "inf" else plain
        found = plain
        while found in self.shapes:
            number = self._numbers[plain] = self._numbers.get(plain, 1) + 1
            found = f"{plain}_{number}"
        return found


MOST_LOOPS = 5
"""Largest number of loops of one kernel. Neighbouring axes that a transpose separates need separate loops."""


def _are_neighbours(shape: Shape, one: int, other: int) -> bool:
    """Return whether axis `other` follows axis `one` with only axes of extent 1 between them."""
    return one < other and all(shape[between] == 1 for between in range(one + 1, other))


def _same_axes(one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two shapes differ only by axes of extent 1."""
    return [extent for extent in one if extent > 1] == [extent for extent in other if extent > 1]


def of(function: str, *arguments: Expression | str | float) -> Call:
    """Return the expression of a scalar function of values (by name), numbers and expressions."""
    return Call(function, tuple(_part(one) for one in arguments))


def _part(given: Expression | str | float) -> Expression:
    if isinstance(given, str):
        return Operand(given)
    if not isinstance(given, int | float):
        return given
    return Constant(given if isinstance(given, int) and abs(given) > MOST_IN_FLOAT64 else float(given))


MOST_MULTIPLIED = 1 << 28
"""Largest number of multiplications of a product in int64. Larger ones are in float32, which is exact for bounded integers."""


def _product(b: Builder, x: str, y: str) -> str:
    """Compute the product [.., m, n] of integers [.., m, k] and [.., k, n]."""
    (*outer, m, k), n = b.shapes[x], b.shapes[y][-1]
    last = len(outer)
    turned = b.reshape(b.transpose(y, (*range(last), last + 1, last)), (*outer, 1, n, k))
    wide = b.call("multiply", b.reshape(x, (*outer, m, 1, k)), turned)
    return b.reshape(b.reduce(wide, "sum", [-1]), (*outer, m, n))


def _of_vector(b: Builder, x: str, y: str) -> str:
    """Compute the product [n] of integers [n, k] and [k]."""
    return b.reshape(b.reduce(b.call("multiply", x, y), "sum", [-1]), b.shapes[x][:1])


_PRODUCTS: dict[str, Callable[..., str]] = {"gemm": _product, "batched_gemm": _product, "gemv": _of_vector}
"""Name of an operator -> function that adds its nodes for integers."""
