"""A dataflow graph: inputs, nodes that each compute one value, and outputs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from keyword import iskeyword
from typing import ClassVar

from gensor_gym.dataflow.expressions import INT8, check_int8, operations
from gensor_gym.dataflow.nodes import (
    DTYPES,
    STORED,
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
    Triangle,
    Value,
)  # fmt: skip
from gensor_gym.dataflow.whole import is_computable

MOST_NODES, MOST_AXES, MOST_ELEMENTS = 1 << 16, 8, 1 << 34
"""Limits on a graph: number of nodes, of axes of a value, and of elements of a value."""
VIEWS = (Broadcast, Reshape)
"""Classes of nodes that need no kernel, because their readers index the source instead."""
MOVES = (Slice, Transpose, Concat, Pad, Gather)
"""Classes of nodes that move elements without computing. If all elements have one type of `STORED`, the value has it too."""


@dataclass(frozen=True)
class Dataflow:
    """A computation of tensors as a graph: inputs, nodes that each compute one value, and outputs.

    Each name is an input, or the value of one earlier node (static single assignment).
    """

    name: str
    inputs: tuple[Value, ...]
    nodes: tuple[tuple[str, Node], ...]
    """Pairs (name of a value, node that computes it). A node comes after the nodes whose values it reads."""
    returns: tuple[str, ...]
    """Names of the outputs, in order."""
    label: str = field(default="", compare=False)
    """Call of the factory that made the graph, such as `softmax(m=128, n=768)`; empty for other graphs."""
    whole: frozenset[str] = frozenset()
    """Names of the nodes that compute in int64 (`dataflow.whole`). All other nodes compute in float32."""
    rounded: frozenset[tuple[str, str]] = frozenset()
    """Pairs (name of a map or reduction, type of `STORED`). Such a value is rounded where a kernel stores it; inside a kernel it
    may stay float32. Only maps can be int8 (`dataflow.expressions`). A contraction's value has the type of its operator."""
    pitches: frozenset[tuple[str, int]] = frozenset()
    """Pairs (name of an output, its `Value.pitch`) of outputs whose rows are apart in memory."""
    dtype: ClassVar[str] = "float32"
    whole_dtype: ClassVar[str] = "int64"

    def __post_init__(self) -> None:
        """Check the graph.

        ValueError for unknown, duplicate or unread names, wrong shapes or types, and graphs above the limits.
        """
        if len(self.nodes) > MOST_NODES:
            raise ValueError(f"{self.name}: {len(self.nodes)} nodes, expected at most {MOST_NODES}")
        if not self.nodes or not self.returns or len(set(self.returns)) != len(self.returns):
            raise ValueError(f"{self.name}: expected at least one node and one output, and no output twice")
        made = {name for name, _ in self.nodes}
        if strangers := [name for name in self.returns if name not in made]:
            raise ValueError(f"{self.name}: output {strangers[0]} is made by no node")
        if strangers := sorted(name for name in self.whole if name not in made or not is_computable(self.makers[name])):
            raise ValueError(f"{self.name}: {strangers[0]} has no form in {self.whole_dtype}, expected {self.dtype}")
        if len(self._rounded) < len(self.rounded):
            raise ValueError(f"{self.name}: a value of two types: {sorted(self.rounded)}")
        for name, kind in sorted(self.rounded):
            node = self.makers.get(name)
            if not isinstance(node, Map | Reduce) or name in self.whole or kind not in STORED:
                expected = f"a map or reduction that computes in {self.dtype}, of {' or '.join(STORED)}"
                raise ValueError(f"{self.name}: {name} of {kind}: expected {expected}")
            if kind == INT8:
                check_int8(node.expression if isinstance(node, Map) else node.body)
        if strangers := sorted(name for name in dict(self.pitches) if name not in self.returns):
            raise ValueError(f"{self.name}: {strangers[0]} has a pitch, expected an output")
        kinds = (self.dtype, *STORED)
        views = [value for value in self.outputs if value.dtype not in kinds and self.behind(value.name)[-1] not in self.whole]
        if views:
            raise ValueError(f"{self.name}: output {views[0].name} is of {views[0].dtype}, expected {self.dtype}")
        for value in self.values.values():
            if len(value.shape) > MOST_AXES or not 0 < value.size <= MOST_ELEMENTS or min(value.shape, default=1) < 1:
                raise ValueError(
                    f"{self.name}: {value.name} has shape {list(value.shape)}, expected at most {MOST_AXES} axes of extent 1 "
                    f"or more and at most {MOST_ELEMENTS} elements"
                )
        if unread := [name for name, readers in self.readers.items() if not readers and name not in self.returns]:
            raise ValueError(f"{self.name}: {unread[0]} is read by nothing and is no output")

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """Name -> value of every input and node, inputs first.

        ValueError names a node whose inputs are missing or have wrong shapes.
        """
        found, pitches = dict[str, Value](), dict(self.pitches)
        for value in self.inputs:
            _add(found, value)
        for name, node in self.nodes:
            if missing := [one for one in node.inputs if one not in found]:
                raise ValueError(f"{self.name}: {name} reads {missing[0]}, which is not made before it")
            given = [found[one] for one in node.inputs]
            try:
                shape = node.shape(*(value.shape for value in given))
            except ValueError as error:
                raise ValueError(f"{self.name}: {name}: {error}") from error
            constant = bool(given) and all(value.constant for value in given)
            _add(found, Value(name, shape, self._stored(name, node, given), constant, pitch=pitches.get(name, 0)))
        return found

    def _stored(self, name: str, node: Node, given: Sequence[Value]) -> str:
        """Return the data type of a node's value in memory."""
        if isinstance(node, VIEWS):
            return given[0].dtype
        if isinstance(node, Contract):
            for value, tensor in zip(given, node.operator.inputs, strict=True):
                kind = tensor.dtype
                if value.dtype != kind and (kind == "int32" or not {value.dtype, kind}.isdisjoint(STORED)):
                    raise ValueError(f"{self.name}: {name} reads {value.name} of {value.dtype}, expected {kind}")
            return node.operator.output.dtype
        if isinstance(node, MOVES) and name not in self.whole:
            moved = {value.dtype for value in given if not (isinstance(node, Gather) and value.name == node.ids)}
            return moved.pop() if len(moved) == 1 and moved <= set(STORED) else self.dtype
        return self._rounded.get(name) or self.type_of(name)

    @cached_property
    def _rounded(self) -> Mapping[str, str]:
        return dict(self.rounded)

    def type_of(self, name: str) -> str:
        """Return the data type in which a node computes: float32, or int64 if declared."""
        return self.whole_dtype if name in self.whole else self.dtype

    @cached_property
    def makers(self) -> Mapping[str, Node]:
        """Name of each value that is not an input -> the node that computes it."""
        return dict(self.nodes)

    def behind(self, name: str, views: tuple[type, ...] = VIEWS) -> list[str]:
        """Return the names of a value and its sources, back to the first value that no node of the classes `views` makes."""
        found = [name]
        while (node := self.makers.get(found[-1])) is not None and isinstance(node, views):
            found += node.inputs
        return found

    def is_repeated(self, name: str) -> bool:
        """Return whether a value is a broadcast: memory has a smaller value, whose elements are read repeatedly."""
        return self.behind(name, (Reshape,))[-1] != self.behind(name)[-1]

    @cached_property
    def readers(self) -> Mapping[str, tuple[str, ...]]:
        """Name of every value -> names of the values that are computed from it."""
        found: dict[str, list[str]] = {name: [] for name in self.values}
        for name, node in self.nodes:
            for one in dict.fromkeys(node.inputs):
                found[one].append(name)
        return {name: tuple(readers) for name, readers in found.items()}

    @cached_property
    def id_limits(self) -> Mapping[str, int]:
        """Name of each input that contains row indices -> number of rows of the smallest table that it reads or writes.

        Random inputs stay below it. Calls may have larger ids (`call_limits`).
        """
        made, found = self.makers, dict[str, int]()
        for _, node in self.nodes:
            if isinstance(node, Gather | Scatter):
                ids = node.ids
                while isinstance(view := made.get(ids), Broadcast | Reshape | Slice | Transpose):
                    ids = view.source
                if ids not in made:
                    rows = node.rows if isinstance(node, Scatter) else self.values[node.table].shape[0]
                    found[ids] = min(found.get(ids, rows), rows)
        return found

    @cached_property
    def call_limits(self) -> Mapping[str, int]:
        """Name of each input that contains row indices -> number of rows that ids in it may select, which calls check.

        It is that of the smallest table for ids that are the whole input. If ids are parts of it (`Slice`), their tables may
        differ: it is that of the largest, and there is no limit if anything else reads the input too.
        """
        whole, parts = dict[str, float](), dict[str, float]()
        for ids, rows in (*self._ids, *((name, math.inf) for name in self.returns)):
            path = self.behind(ids, (Broadcast, Reshape, Slice, Transpose))
            if path[-1] in self.makers:
                continue
            if rows == math.inf or any(isinstance(self.makers[name], Slice) for name in path[:-1]):
                parts[path[-1]] = max(parts.get(path[-1], 0.0), rows)
            else:
                whole[path[-1]] = min(whole.get(path[-1], rows), rows)
        found = {name: min(whole.get(name, math.inf), parts.get(name, math.inf)) for name in (*whole, *parts)}
        return {name: int(rows) for name, rows in found.items() if rows < math.inf}

    @property
    def _ids(self) -> Iterator[tuple[str, float]]:
        """Yield each value that a node other than a view reads, and the number of rows that it indexes (infinity if none)."""
        for _, node in self.nodes:
            if isinstance(node, Broadcast | Reshape | Slice | Transpose):
                continue
            for name in node.inputs[:1] if isinstance(node, Gather | Scatter) else node.inputs:
                yield name, math.inf
            if isinstance(node, Gather | Scatter):
                yield node.ids, node.rows if isinstance(node, Scatter) else self.values[node.table].shape[0]

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The output values, in order."""
        return tuple(self.values[name] for name in self.returns)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of name, inputs, nodes, outputs, types and pitches, without the label."""
        kinds = [sorted(some) for some in (self.whole, self.rounded, self.pitches) if some]
        parts = (self.name, self.inputs, self.nodes, self.returns, *kinds)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def __str__(self) -> str:
        """The call that made the graph (`label`); without a label, its name and the first twelve digits of its digest."""
        return self.label or f"{self.name}@{self.digest[:12]}"

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any kernel must at least move: every input element that is read and every output element, once each.

        Triangles need not be read.
        """
        read = self._read
        given = sum(value.nbytes // value.size * read[value.name] for value in self.inputs if value.triangle is None)
        return given + sum(value.nbytes for value in self.outputs)

    @cached_property
    def _read(self) -> Mapping[str, int]:
        """Name of every value -> number of its elements that are read.

        Slices read only a part; gathers read only the chosen rows, which count as distinct.
        """
        sizes = {name: value.size for name, value in self.values.items()}
        found = {name: sizes[name] if name in self.returns else 0 for name in sizes}
        for name, node in reversed(self.nodes):
            for source in node.inputs:
                moved = isinstance(node, Slice | Reshape | Transpose) or (isinstance(node, Gather) and source != node.ids)
                found[source] = min(sizes[source], found[source] + (found[name] if moved else sizes[source]))
        return found

    @property
    def flops(self) -> int:
        """Number of floating-point operations that maps, reductions and contractions need.

        Of matrices of a triangle's extents, only elements up to the diagonal count.
        """
        return sum(self._flops(name, node) for name, node in self.nodes) if not self._triangles else sum(
            self._flops(name, node) * seen // whole for name, node in self.nodes for seen, whole in (self._share(name, node),)
        )

    @cached_property
    def _triangles(self) -> Mapping[str, Triangle]:
        """Name of each input that is a triangle -> the triangle."""
        return {value.name: value.triangle for value in self.inputs if value.triangle is not None}

    def _share(self, name: str, node: Node) -> tuple[int, int]:
        """Return the share of a node's work that is needed: (elements up to the diagonal of a triangle, all elements)."""
        ends = {self.values[one].shape[-2:] for one in (name, *node.inputs)}
        known = ((self.values[at].shape[-2:], one) for at, one in self._triangles.items())
        return min(((one.visible(*end), end[0] * end[1]) for end, one in known if end in ends), default=(1, 1))

    def _flops(self, name: str, node: Node) -> int:
        if isinstance(node, Map):
            return operations(node.expression) * self.values[name].size
        if isinstance(node, Reduce | Scatter):
            return self.values[node.source].size
        return node.operator.flops if isinstance(node, Contract) else 0


def _add(found: dict[str, Value], value: Value) -> None:
    if not value.name.isidentifier() or iskeyword(value.name) or value.name == "inf":
        raise ValueError(f"name {value.name!r}: expected letters, digits and underscores, and no word of Python's")
    if value.name in found:
        raise ValueError(f"{value.name} is made twice")
    if value.dtype not in DTYPES:
        raise ValueError(f"{value.name} is of {value.dtype}: expected one of {', '.join(DTYPES)}")
    if value.pitch and (not value.shape or value.pitch < value.shape[-1]):
        raise ValueError(f"{value.name} of shape {list(value.shape)} has pitch {value.pitch}, expected the last extent or more")
    found[value.name] = value
