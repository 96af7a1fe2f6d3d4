"""A network: a dataflow graph together with the arrays that are the same at every call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gensor_gym.dataflow.bounds import Bounded
from gensor_gym.dataflow.evaluate import evaluate
from gensor_gym.dataflow.graph import VIEWS, Dataflow
from gensor_gym.dataflow.joins import cuts, joins
from gensor_gym.dataflow.nodes import Node, Reshape, Value
from gensor_gym.networks.forms import Form, Types


@dataclass(frozen=True)
class Called:
    """Inputs and outputs of a network's call, without its weights: a `Computation`."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    dtype: str
    flops: int
    compulsory_bytes: int
    id_limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Number of rows to choose from, for every input that holds row ids."""
    limits: Mapping[str, int] = field(default_factory=dict, hash=False)
    """See `Network.limits`."""

    def __str__(self) -> str:
        """The name."""
        return self.name

    def check_ids(self, inputs: Sequence[Any]) -> None:
        """ValueError for ids outside their table, and for numbers beyond exact arithmetic.

        Shapes are checked elsewhere.
        """
        for value, given in zip(self.inputs, inputs, strict=False):
            rows, limit = self.id_limits.get(value.name), self.limits.get(value.name)
            if (rows, limit) == (None, None) or tuple(getattr(given, "shape", ())) != value.shape:
                continue
            least, most = map(int, given.aminmax() if hasattr(given, "aminmax") else (given.min(), given.max()))
            if rows is not None and (least < 0 or most >= rows):
                raise ValueError(f"{self}: {value.name} has id {least if least < 0 else most}: expected 0 to {rows - 1}")
            if limit is not None and max(-least, most) > limit:
                said = f"expected whole numbers from {-limit} to {limit}, of which kernels compute all exactly"
                raise ValueError(f"{self}: {value.name} has {most if most > limit else least}: {said}")


@dataclass(frozen=True, eq=False)
class Network:
    """A graph, its weights, and the source operation of every node."""

    graph: Dataflow
    constants: Mapping[str, np.ndarray]
    """float32 arrays of the graph's constant inputs, by name; in any order in memory."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Name of a node's value -> operation, such as `layer1.0.conv1: conv2d`. Nodes of one operation are one primitive."""
    unread: Mapping[int, Value] = field(default_factory=dict)
    """Unused inputs of a call, by number."""
    form: Form = None
    """Form of the user's result over numbers of outputs; None for one output, or a tuple of all."""
    types: Types = field(default_factory=dict)
    """Data types that outputs are cast to, in order, if they are not float32 for users; kernels compute float32."""
    arguments: Mapping[str, Form] | None = None
    """The user's arguments by name, over numbers of inputs; None for one tensor each, by the names of inputs."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Largest magnitude of integer inputs of arithmetic for which kernels are exact."""

    def __post_init__(self) -> None:
        """ValueError unless there is an array of the right shape for every constant input."""
        wanted = {value.name: value.shape for value in self.graph.inputs if value.constant}
        given = {name: array.shape for name, array in self.constants.items()}
        if wanted != given:
            wrong = next(name for name in {**wanted, **given} if wanted.get(name) != given.get(name))
            raise ValueError(f"{self.graph.name}: constant {wrong} is {given.get(wrong)}, expected {wanted.get(wrong)}")
        for name, array in self.constants.items():
            if array.dtype != np.float32:
                raise ValueError(f"{self.graph.name}: constant {name} is of {array.dtype}, expected float32")

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """Inputs of a call, in order."""
        found = [value for value in self.graph.inputs if not value.constant]
        for number, value in sorted(self.unread.items()):
            found.insert(number, value)
        return tuple(found)

    @cached_property
    def takes(self) -> Mapping[str, Form]:
        """The user's arguments by name, in order."""
        return {value.name: place for place, value in enumerate(self.inputs)} if self.arguments is None else self.arguments

    @cached_property
    def called(self) -> Called:
        """The call's signature."""
        own = self.graph.name, self.inputs, self.outputs, self.dtype, self.flops, self.compulsory_bytes
        return Called(*own, self.id_limits, self.limits)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Outputs of a call, in order."""
        return self.graph.outputs

    @property
    def id_limits(self) -> Mapping[str, int]:
        """Number of rows to choose from, for every input that holds row ids."""
        return self.graph.id_limits

    @property
    def dtype(self) -> str:
        """Data type of the arithmetic."""
        return self.graph.dtype

    @property
    def flops(self) -> int:
        """Floating-point operations of a call."""
        return self.graph.flops

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any program must move: inputs, weights and outputs once."""
        return self.graph.compulsory_bytes

    def __str__(self) -> str:
        """The name."""
        return self.graph.name

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """The node of each value that is no input."""
        return self.graph.makers

    def source_of(self, name: str) -> str:
        """The source of a view, or of a view of a view; the value itself if it is none."""
        return self.graph.behind(name)[-1]

    def root_of(self, name: str) -> str:
        """The value that owns a value's memory: itself, or the source of a reshape."""
        return self.graph.behind(name, (Reshape,))[-1]

    @cached_property
    def known(self) -> dict[object, Any]:
        """Cache of facts on its parts: plans differ in a few pieces."""
        return {}

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Number of every node in the graph."""
        return {name: number for number, (name, _) in enumerate(self.graph.nodes)}

    @cached_property
    def joins(self) -> Mapping[str, tuple[str, int]]:
        """For every value that is made within another: (that, bytes before it); see `dataflow.joins`."""
        return joins(self.graph)

    @cached_property
    def cuts(self) -> Mapping[str, tuple[str, int]]:
        """For every slice that is read in place: (the value that contains it, bytes before it); see `dataflow.joins`."""
        return cuts(self.graph)

    @cached_property
    def _within(self) -> Mapping[str, tuple[str, int]]:
        return {**self.joins, **self.cuts}

    @cached_property
    def _joined(self) -> dict[str, list[str]]:
        """Parts of each whole, in order."""
        found: dict[str, list[str]] = {}
        for part, (whole, _) in self.joins.items():
            found.setdefault(whole, []).append(part)
        return found

    @cached_property
    def _free(self) -> frozenset[str]:
        return frozenset(self._joined) | self.cuts.keys() | {name for name, node in self.nodes.items() if isinstance(node, VIEWS)}

    def is_free(self, name: str) -> bool:
        """Whether a node needs no kernel: a view, a join of parts made in place, or a part read in place."""
        return name in self._free

    def place_of(self, name: str) -> tuple[str, int]:
        """(outermost value whose memory contains it, its offset there in bytes)."""
        root, before = self.root_of(name), 0
        while root in self._within:
            root, more = self._within[root]
            before += more
        return root, before

    def made_by(self, name: str) -> list[str]:
        """The value, or all its parts if it is made in parts; for a part read in place, what the whole is made of."""
        if name in self.cuts:
            return self.made_by(self.source_of(self.cuts[name][0]))
        if name not in self._joined:
            return [name]
        return [one for part in self._joined[name] for one in self.made_by(part)]

    def reference(self, *inputs: np.ndarray) -> tuple[Bounded, ...]:
        """The outputs in float64, each with the bound that is propagated node by node."""
        given = dict(self.constants) | {value.name: array for value, array in zip(self.inputs, inputs, strict=True)}
        return evaluate(self.graph, [given[value.name] for value in self.graph.inputs])


def needed(name: str, inputs: Sequence[Value], nodes: Sequence[tuple[str, Node]], returns: Sequence[str]) -> Dataflow:
    """The graph of those nodes and inputs that the outputs are made of."""
    wanted = set(returns)
    for made, node in reversed(nodes):
        if made in wanted:
            wanted.update(node.inputs)
    kept = tuple(value for value in inputs if value.name in wanted)
    return Dataflow(name, kept, tuple((made, node) for made, node in nodes if made in wanted), tuple(returns))
