"""A network for all sizes up to its own: masks, numbers and constants that change with the sizes become inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand
from gensor_gym.dataflow.nodes import (
    HALVES,
    Broadcast,
    Concat,
    Gather,
    Map,
    Node,
    Pad,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    Value,
)  # fmt: skip
from gensor_gym.networks.dynamic.axes import Axes, NotRestricted, extents, valid
from gensor_gym.networks.dynamic.restriction import Need, Restriction
from gensor_gym.networks.network import Network, needed

SIZES = "of_size"
"""Prefix of the names of inputs that depend on the sizes."""


@dataclass(frozen=True)
class Given:
    """An input of an opened network that is the same at every call of one size: a mask, a number or a constant."""

    value: Value
    mask: tuple[str, int] | None = None
    """(value, axis) whose indices the mask marks: 1 in the smaller network, 0 elsewhere."""
    number: tuple[str, int, float] | None = None
    """(map, index of the number in its expression, number in the larger network)."""
    constant: str = ""
    """Name of the constant of the larger network."""
    move: str = ""
    """Name of the node whose elements are moved (`Restriction.moves`)."""


@dataclass(frozen=True)
class Opened:
    """A network for sizes up to its own, `network`, whose last inputs are `given`, and its origin, the network `big`."""

    network: Network
    big: Network
    proof: Restriction
    given: tuple[Given, ...]

    def arrays(self, found: Restriction) -> list[np.ndarray]:
        """Return the arrays of `given` for the sizes of the proof `found`. NotRestricted if that needs more than `proof`."""
        wanted = self.proof
        more: list[Any] = [*(found.needs - wanted.needs)]
        for one, other in ((found.numbers, wanted.numbers), (found.constants, wanted.constants), (found.moves, wanted.moves)):
            more += one.keys() - other.keys()  # type: ignore[attr-defined]
        if more:
            raise NotRestricted(f"{more[0]} does not change between other sizes of its bucket")
        return [self._array(one, found) for one in self.given]

    def _array(self, one: Given, found: Restriction) -> np.ndarray:
        if one.mask is not None:
            axes = {_marks(found, self.big, need) for need in self.proof.needs if self._of(need) == self._key(*one.mask)}
            if len(axes) != 1:
                raise NotRestricted(f"{one.mask[0]}: its axis has another size than those that it has elsewhere")
            return np.frombuffer(axes.pop(), bool).astype(np.float32)
        if one.number is not None:
            node, place, number = one.number
            return np.full(one.value.shape, found.numbers.get((node, place), number), np.float32)
        if one.move:
            first = getattr(self.big.nodes[one.move], "start", 0)
            return found.moves.get(one.move, first + np.arange(*one.value.shape)).astype(np.int32)
        array = self.big.constants[one.constant]
        if (own := found.constants.get(one.constant)) is not None:
            array = array.copy()
            array[tuple(map(slice, own.shape))] = own
        return array

    def _of(self, need: Need) -> tuple[tuple[int, int], ...]:
        return self._key(self.big.nodes[need.node].inputs[need.place], need.axis)

    def _key(self, name: str, axis: int) -> tuple[tuple[int, int], ...]:
        return tuple(factor.extents for factor in known_axis(self.proof.axes, self.big, name, axis))


def known_axis(axes: Mapping[str, Axes], big: Network, name: str, axis: int) -> tuple:  # type: ignore[type-arg]
    """Return the factors of an axis of a value."""
    found = axes[name][axis]
    if found is None:
        raise NotRestricted(f"{name}: an axis along which all elements are equal")
    return found


def _marks(found: Restriction, big: Network, need: Need) -> bytes:
    name = big.nodes[need.node].inputs[need.place]
    return valid(known_axis(found.axes, big, name, need.axis)).tobytes()


def opened(big: Network, proof: Restriction) -> Opened:
    """Make the network for all sizes up to those of `big` whose proof is like `proof`."""
    outside = list(dict.fromkeys([*proof.constants, *_tables(big)]))
    made = _Opening(big, proof, outside)
    for name, node in big.graph.nodes:
        made.add(name, node)
    values = [one.value for one in made.given]
    inputs = [value for value in big.graph.inputs if value.name not in outside]
    graph = needed(
        big.graph.name, (*inputs, *values), made.nodes, big.graph.returns, big.graph.whole, big.graph.rounded | made.rounded
    )
    constants = {name: array for name, array in big.constants.items() if name not in outside}
    network = replace(big, graph=graph, constants=constants, origins={**big.origins, **made.origins}, arguments=None)
    return Opened(network, big, proof, tuple(made.given))


def _tables(big: Network) -> list[str]:
    """Return the constants that are only tables of rows, such as embeddings. As inputs, all buckets share them."""

    def is_table(name: str) -> bool:
        readers = [big.nodes[one] for one in big.graph.readers[name]]
        return all(isinstance(node, Gather) and node.ids != name for node in readers)

    return [value.name for value in big.graph.inputs if value.constant and is_table(value.name)]


class _Opening:
    def __init__(self, big: Network, proof: Restriction, outside: Collection[str]) -> None:
        self.big, self.proof = big, proof
        self.nodes: list[tuple[str, Node]] = []
        self.given: list[Given] = []
        self.rounded: set[tuple[str, str]] = set()
        self.origins: dict[str, str] = {}
        self.instead: dict[str, str] = {}
        """Name of a value -> name of the value that later nodes read."""
        self.masks: dict[tuple[tuple[int, int], ...], str] = {}
        for name in outside:
            value = next(one for one in big.graph.inputs if one.name == name)
            self.given.append(Given(replace(value, constant=False), constant=name))

    def add(self, name: str, node: Node) -> None:
        """Add a node of the larger network, with masks before it and numbers as operands."""
        reads = {one: self.instead.get(one, one) for one in node.inputs}
        for need in sorted((need for need in self.proof.needs if need.node == name), key=lambda need: (need.place, need.axis)):
            source = node.inputs[need.place]
            reads[source] = self._masked(need, source, reads[source])
            if isinstance(node, Reduce) and node.body == "max":
                self.instead[source] = reads[source]
        numbers = {place: key for key in self.proof.numbers if key[0] == name for place in [key[1]]}
        if numbers:
            assert isinstance(node, Map)
            expression = self._with_operands(name, node.expression, numbers)
            names = {**{one: one for one in self._fresh_operands(expression, reads)}, **reads}
            node = Map(expression).reading(names)
        else:
            node = node.reading(reads)
        if name in self.proof.moves:
            node = self._moved(name, node)
        self.nodes.append((name, node))

    def _moved(self, name: str, node: Node) -> Node:
        """Add nodes that move the elements of a node to the indices that a size gives; return the last of these nodes."""
        assert isinstance(node, Slice | Concat | Pad)
        rank, axis, source = len(self.big.graph.values[name].shape), node.axis, f"{name}_whole"
        if isinstance(node, Slice):
            source = node.source
        else:
            self._node(source, node, name)
        ids = self._new((self.big.graph.values[name].shape[axis],), "int32", move=name)
        order = (axis, *(other for other in range(rank) if other != axis))
        self._node(f"{name}_lined", Transpose(source, order), name)
        self._node(f"{name}_moved", Gather(f"{name}_lined", ids), name)
        return Transpose(f"{name}_moved", tuple(map(int, np.argsort(order))))

    def _fresh_operands(self, expression: Expression, reads: Mapping[str, str]) -> list[str]:
        return [one for one in Map(expression).inputs if one not in reads]

    def _new(self, shape: tuple[int, ...], dtype: str = "float32", **what: object) -> str:
        value = Value(f"{SIZES}_{len(self.given)}", shape, dtype)
        self.given.append(Given(value, **what))  # type: ignore[arg-type]
        return value.name

    def _masked(self, need: Need, source: str, read: str) -> str:
        factors = known_axis(self.proof.axes, self.big, source, need.axis)
        key, shape = tuple(factor.extents for factor in factors), self.big.graph.values[source].shape
        if key not in self.masks:
            self.masks[key] = self._new((extents(factors)[1],), mask=(source, need.axis))
        name = f"{need.node}_{need.place}_{need.axis}_masked"
        lined = tuple(extent if axis == need.axis else 1 for axis, extent in enumerate(shape))
        self._node(f"{name}_line", Reshape(self.masks[key], lined), need.node)
        self._node(f"{name}_wide", Broadcast(f"{name}_line", shape), need.node)
        self._node(name, Map(Call("where", (Operand(f"{name}_wide"), Operand(read), Constant(need.number)))), need.node)
        if (kind := self.big.graph.values[source].dtype) in HALVES:
            self.rounded.add((name, kind))
        return name

    def _node(self, name: str, node: Node, origin: str) -> None:
        self.nodes.append((name, node))
        if origin in self.big.origins:
            self.origins[name] = self.big.origins[origin]

    def _with_operands(self, name: str, expression: Expression, numbers: Mapping[int, tuple[str, int]]) -> Expression:
        """Return the expression with operands in place of the numbers that change."""
        places = iter(range(1 << 30))
        shape = self.big.graph.values[name].shape

        def change(part: Expression) -> Expression:
            if isinstance(part, Call):
                return Call(part.function, tuple(map(change, part.arguments)))
            if not isinstance(part, Constant) or (place := next(places)) not in numbers:
                return part
            given = self._new((1,), number=(name, place, part.value))
            line, wide = f"{given}_line", f"{given}_wide"
            self._node(line, Reshape(given, (1,) * len(shape)), name)
            self._node(wide, Broadcast(line, shape), name)
            return Operand(wide)

        return change(expression)
