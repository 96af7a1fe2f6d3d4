"""A network: a dataflow graph with its constant arrays, which are equal at every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gensor_gym.dataflow.bounds import Bounded
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import VIEWS, Dataflow
from gensor_gym.dataflow.joins import cuts, is_leading, joins
from gensor_gym.dataflow.nodes import Concat, Map, Node, Reduce, Reshape, Value
from gensor_gym.networks.forms import Form, Types
from gensor_gym.operators.inputs import encode
from gensor_gym.operators.types import ARRAY_DTYPE


@dataclass(frozen=True)
class Called:
    """Signature of a network's call: inputs, outputs and amount of work, without weights. It is a `Computation`."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    dtype: str
    flops: int
    compulsory_bytes: int
    id_limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Name of an input with row ids (indices) -> number of rows of its table."""
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Name of an integer input -> largest magnitude for which results are exact (`Network.limits`)."""

    def __str__(self) -> str:
        return self.name

    def check_ids(self, inputs: Sequence[Any]) -> None:
        """Raise ValueError for ids outside their table, and for integer inputs too large to give exact results (`limits`).

        An input of another shape or type is not checked, because the call refuses it.
        """
        for value, given in zip(self.inputs, inputs, strict=False):
            rows, limit = self.id_limits.get(value.name), self.limits.get(value.name)
            if (rows, limit) == (None, None):
                continue
            array = given if hasattr(given, "shape") else np.asarray(given)
            if tuple(array.shape) != value.shape or "int" not in str(array.dtype):
                continue
            least, most = map(int, array.aminmax() if hasattr(array, "aminmax") else (array.min(), array.max()))
            if rows is not None and (least < 0 or most >= rows):
                raise ValueError(f"{self}: {value.name} has id {least if least < 0 else most}: expected 0 to {rows - 1}")
            if limit is not None and max(-least, most) > limit:
                said = f"expected whole numbers from {-limit} to {limit}, of which kernels compute all exactly"
                raise ValueError(f"{self}: {value.name} has {most if most > limit else least}: {said}")


@dataclass(frozen=True, eq=False)
class Network:
    """A dataflow graph, its weights, and the torch operation from which each node comes."""

    graph: Dataflow
    constants: Mapping[str, np.ndarray]
    """Name of a constant input -> its array, in any memory order."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Name of a node -> its torch operation, such as `layer1.0.conv1: conv2d`. `cut_all` keeps nodes of one operation together.
    """
    unread: Mapping[int, Value] = field(default_factory=dict)
    """Index of an input of a call that no node reads -> that input."""
    form: Form = None
    """Nested form of the user's result, whose leaves are indices of outputs; None for one output, or a tuple of all outputs."""
    types: Types = field(default_factory=dict)
    """Index of an output -> data types to which it is cast, in order. Outputs without casts are missing."""
    arguments: Mapping[str, Form] | None = None
    """Name of a user's argument -> nested form, whose leaves are indices of inputs; None if each input is an argument of its
    name.
    """
    limits: Mapping[str, int] = field(default_factory=dict)
    """Name of an integer input that is used in arithmetic -> largest magnitude for which kernels are exact."""

    def __post_init__(self) -> None:
        """Check that every constant input has an array of its shape and type; ValueError otherwise."""
        wanted = {value.name: value for value in self.graph.inputs if value.constant}
        given = {name: array.shape for name, array in self.constants.items()}
        shapes = {name: value.shape for name, value in wanted.items()}
        if shapes != given:
            wrong = next(name for name in {**shapes, **given} if shapes.get(name) != given.get(name))
            raise ValueError(f"{self.graph.name}: constant {wrong} is {given.get(wrong)}, expected {shapes.get(wrong)}")
        for name, array in self.constants.items():
            if array.dtype != ARRAY_DTYPE[wanted[name].dtype]:
                expected = ARRAY_DTYPE[wanted[name].dtype]
                raise ValueError(f"{self.graph.name}: constant {name} is of {array.dtype}, expected {expected}")

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """Return the inputs of a call in order, also those that no node reads."""
        found = [value for value in self.graph.inputs if not value.constant]
        for number, value in sorted(self.unread.items()):
            found.insert(number, value)
        return tuple(found)

    @cached_property
    def takes(self) -> Mapping[str, Form]:
        """Return the form of each argument of the user by name, in order."""
        return {value.name: place for place, value in enumerate(self.inputs)} if self.arguments is None else self.arguments

    @cached_property
    def called(self) -> Called:
        """Return the signature of the network's call."""
        own = self.graph.name, self.inputs, self.outputs, self.dtype, self.flops, self.compulsory_bytes
        return Called(*own, self.id_limits, self.limits)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Return the outputs of a call, in order."""
        return self.graph.outputs

    @property
    def id_limits(self) -> Mapping[str, int]:
        """Return the number of rows that calls may select for each input that has row ids (indices), by the input's name."""
        return self.graph.call_limits

    @property
    def dtype(self) -> str:
        """Return the data type of the arithmetic."""
        return self.graph.dtype

    @property
    def flops(self) -> int:
        """Return the number of floating-point operations of a call."""
        return self.graph.flops

    @property
    def compulsory_bytes(self) -> int:
        """Return the bytes that any program must move: inputs, weights and outputs once each."""
        return self.graph.compulsory_bytes

    def __str__(self) -> str:
        return self.graph.name

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """Return the node that computes each value by the value's name. Inputs have none."""
        return self.graph.makers

    def source_of(self, name: str) -> str:
        """Follow views (such as reshapes) from a value to the value that is computed.

        Return its name; `name` itself if it is no view.
        """
        return self.graph.behind(name)[-1]

    def root_of(self, name: str) -> str:
        """Return the name of the value in whose memory a value is: the source of a reshape, else `name` itself."""
        return self.graph.behind(name, (Reshape,))[-1]

    @cached_property
    def known(self) -> dict[object, Any]:
        """Return a cache of facts about pieces and nodes.

        All plans of the network share it, because they differ in few pieces.
        """
        return {}

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Return each node's index in the graph's order, by name."""
        return {name: number for number, (name, _) in enumerate(self.graph.nodes)}

    @cached_property
    def joins(self) -> Mapping[str, tuple[str, int]]:
        """Return which values are computed inside another value's memory, as parts of a concatenation; see `dataflow.joins`.

        It maps a name to (the other value, offset in bytes).
        """
        return joins(self.graph)

    @cached_property
    def cuts(self) -> Mapping[str, tuple[str, int]]:
        """Return which slices are read in place, inside another value's memory; see `dataflow.joins`.

        It maps a slice's name to (the value that contains it, offset in bytes).
        """
        return cuts(self.graph)

    @cached_property
    def _within(self) -> Mapping[str, tuple[str, int]]:
        return {**self.joins, **self.cuts}

    @cached_property
    def _joined(self) -> dict[str, list[str]]:
        """Return the parts of each value that is computed in parts, such as a concatenation, by name and in order."""
        found: dict[str, list[str]] = {}
        for part, (whole, _) in self.joins.items():
            found.setdefault(whole, []).append(part)
        return found

    @cached_property
    def _free(self) -> frozenset[str]:
        return frozenset(self._joined) | self.cuts.keys() | {name for name, node in self.nodes.items() if isinstance(node, VIEWS)}

    def is_free(self, name: str) -> bool:
        """Return whether a node needs no kernel: a view, a join of parts computed in place, or a slice read in place."""
        return name in self._free

    def place_of(self, name: str) -> tuple[str, int]:
        """Return where a value is in memory: (outermost value whose memory contains it, offset there in bytes)."""
        root, before = self.root_of(name), 0
        while root in self._within:
            root, more = self._within[root]
            before += more
        return root, before

    def pitch_of(self, name: str) -> int:
        """Return the distance in memory of a value's rows, in elements, if it is a part of longer rows; else 0."""
        root, pitch = self.root_of(name), 0
        while root in self.joins:
            root, _ = self.joins[root]
            node, shape = self.nodes[root], self.graph.values[root].shape
            assert isinstance(node, Concat)
            pitch = pitch if is_leading(shape, node.axis) else shape[-1]
        return pitch

    def made_by(self, name: str) -> list[str]:
        """Return the names of the values that kernels compute for a value: itself, or its parts if it is computed in parts.

        For a slice that is read in place they are those of the value that contains it.
        """
        if name in self.cuts:
            return self.made_by(self.source_of(self.cuts[name][0]))
        if name not in self._joined:
            return [name]
        return [one for part in self._joined[name] for one in self.made_by(part)]

    def reference(self, *inputs: np.ndarray) -> tuple[Bounded, ...]:
        """Compute the outputs in float64, each with an error bound that is propagated node by node."""
        given = dict(self.constants) | {value.name: array for value, array in zip(self.inputs, inputs, strict=True)}
        return evaluate(self.graph, [given[value.name] for value in self.graph.inputs])


def needed(
    name: str, inputs: Sequence[Value], nodes: Sequence[tuple[str, Node]], returns: Sequence[str], whole: Set[str] = frozenset(),
    rounded: Set[tuple[str, str]] = frozenset(),
) -> Dataflow:  # fmt: skip
    """Build a graph of only the nodes and inputs on which the outputs `returns` depend.

    `whole` names the nodes that compute in int64, `rounded` the values that are rounded when stored (`Dataflow.rounded`).
    """
    wanted = set(returns)
    for made, node in reversed(nodes):
        if made in wanted:
            wanted.update(node.inputs)
    kept = tuple(value for value in inputs if value.name in wanted)
    left = tuple((made, node) for made, node in nodes if made in wanted)
    there = {made for made, _ in left}
    rounded = frozenset((made, kind) for made, kind in rounded if made in there)
    return Dataflow(name, kept, left, tuple(returns), "", frozenset(whole & there), rounded)


def held(array: np.ndarray, dtype: str) -> np.ndarray:
    """Convert a constant to the data type in which kernels read it; bfloat16 is stored as its bits."""
    return array if array.dtype == ARRAY_DTYPE[dtype] else encode(array, dtype)


def pruned(
    network: Network, inputs: tuple[Value, ...], nodes: list[tuple[str, Node]], arrays: Mapping[str, np.ndarray],
    rounded: Set[tuple[str, str]] = frozenset(),
) -> Network:  # fmt: skip
    """Build a network from new inputs, nodes and constants, without everything that no output needs.

    The rest, such as outputs and arguments, is that of `network`. `rounded` are values to round in addition to the network's
    (`Dataflow.rounded`).
    """
    makers = dict(nodes)
    kinds = {one for one in network.graph.rounded | rounded if isinstance(makers.get(one[0]), Map | Reduce)}
    graph = needed(network.graph.name, inputs, nodes, network.graph.returns, network.graph.whole, kinds)
    constants = {value.name: held(arrays[value.name], value.dtype) for value in graph.inputs if value.constant}
    asked = [value for value in network.inputs if value not in graph.inputs]
    unread = {network.inputs.index(value): value for value in asked}
    origins = {name: network.origins[name] for name, _ in graph.nodes if name in network.origins}
    return Network(graph, constants, origins, unread, network.form, network.types, network.arguments, network.limits)


def in_order(made: Mapping[str, Node]) -> list[tuple[str, Node]]:
    """Sort nodes so that each comes after the nodes that it reads."""
    found: dict[str, Node] = {}
    for start in made:
        waiting = [start]
        while waiting:
            name = waiting[-1]
            if missing := [one for one in made[name].inputs if one in made and one not in found]:
                waiting += missing
            else:
                found.setdefault(waiting.pop(), made[name])
    return list(found.items())
