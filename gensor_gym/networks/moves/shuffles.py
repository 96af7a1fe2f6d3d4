"""Replaces nodes that rearrange whole rows, such as the roll of windows, by one gather of rows with constant ids.

A roll is a join of slices, each with a kernel. A gather is a read of a row nest (maps and reductions of each row) in another
order, so a sum or normalisation of the rows needs no kernel for it. A normalisation before the rearrangement is computed after
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import HALVES, Broadcast, Concat, Contract, Gather, Map, Node, Reduce, Reshape, Slice, Transpose

LEAST_COLUMNS = 16
"""Shortest row, in elements, that is gathered, because a gather reads an index for each row."""
MOST_MOVED = 1 << 24
"""Largest number of elements of a value whose rearrangement is followed element by element."""
_MOVES = (Reshape, Transpose, Slice, Concat)


@dataclass
class Shuffles:
    """Nodes of a graph in which gathers replace the nodes that rearrange rows."""

    graph: Dataflow
    nodes: dict[str, Node] = field(init=False)
    """All nodes, including those that no node reads any more."""
    ids: dict[str, np.ndarray] = field(default_factory=dict)
    """Name of a new constant -> indices of the gathered rows, int32."""
    instead: dict[str, str] = field(default_factory=dict)
    """Name of a new node -> the node of the old graph that it replaces."""

    def __post_init__(self) -> None:
        self.nodes = dict(self.graph.makers)
        sources = _moved_from(self.graph)
        joined = _after(self.graph, sources, Concat)
        for name in _ends(self.graph, sources):
            base, rows = _computed_before(self.graph, name, sources)
            if name in joined or rows or _is_in_nest(self.graph, name, sources[name]):
                ids = _rows_moved(self.graph, name, sources[name])
                if ids is not None and not np.array_equal(ids, np.arange(len(ids))):
                    self._gather(name, (base, *rows), sources[name], ids)

    def _gather(self, end: str, computed: tuple[str, ...], source: str, ids: np.ndarray) -> None:
        """Replace the value `end`: gather rows of the first value of `computed`, and compute the other values from these rows.

        `source` is the value that `end` rearranges. `ids` has the index of the row that each row of the result reads.
        """
        values, (base, *rows) = self.graph.values, computed
        shape = values[end].shape
        chosen = self._name(f"rows_of_{end}", end)
        self.ids[chosen] = ids.reshape(shape[:-1])
        flat = self._add(f"{base}_rows", Reshape(base, (values[base].size // shape[-1], shape[-1])), end)
        made = {base: self._add(f"{base}_moved", Gather(flat, chosen), end)}
        for name in rows:
            made[name] = self._computed(name, made, shape)
        self.nodes[end] = self.nodes.pop(made[source])

    def _computed(self, name: str, made: Mapping[str, str], shape: tuple[int, ...]) -> str:
        """Add the node that computes the row-wise value `name` from gathered rows. Return the new node's name.

        `made` maps the values before it to their new names. `shape` is that of the gathered rows.
        """
        node = self.graph.makers[name]
        if isinstance(node, Reshape):
            return made[node.source]
        if isinstance(node, Reduce):
            return self._add(name, Reduce(made[node.source], node.body, (len(shape) - 1,)), name)
        if isinstance(node, Broadcast):
            source = made.get(node.source) or self._add(node.source, Reshape(node.source, shape[-1:]), name)
            return self._add(name, Broadcast(source, shape), name)
        beside = {one: self._computed(one, made, shape) for one in node.inputs if one not in made}
        return self._add(name, node.reading({**made, **beside}), name)

    def _add(self, name: str, node: Node, old: str) -> str:
        self.nodes[made := self._name(name, old)] = node
        return made

    def _name(self, name: str, old: str) -> str:
        while name in self.graph.values or name in self.nodes or name in self.ids:
            name += "_there"
        self.instead[name] = old
        return name


def _moved_from(graph: Dataflow) -> dict[str, str]:
    """Find values that are only a rearrangement (by reshapes, transposes, slices, joins) of one floating-point value.

    Return that value's name for each of them.
    """
    found: dict[str, str] = {}
    for name, node in graph.nodes:
        of = {found.get(one, one) for one in node.inputs}
        kinds = (graph.dtype, *HALVES)
        if isinstance(node, _MOVES) and len(of) == 1 and name not in graph.whole and graph.values[min(of)].dtype in kinds:
            found[name] = of.pop()
    return found


def _after(graph: Dataflow, sources: Mapping[str, str], kind: type[Node]) -> set[str]:
    found = set[str]()
    for name in sources:
        if isinstance(graph.makers[name], kind) or not found.isdisjoint(graph.makers[name].inputs):
            found.add(name)
    return found


def _ends(graph: Dataflow, sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the last values of rearrangements that contain a concatenation, or both a reshape and a transpose.

    Such a value is an output, or a node that does not continue the rearrangement reads it.
    """
    moved = _after(graph, sources, Concat) | (_after(graph, sources, Transpose) & _after(graph, sources, Reshape))
    for name in sources:
        if name in moved and (name in graph.returns or any(one not in moved for one in graph.readers[name])):
            yield name


def _is_in_nest(graph: Dataflow, name: str, source: str) -> bool:
    """Return whether only maps and reductions read a value, and its rows are as long as those of `source`."""
    last = graph.values[name].shape[-1:] == graph.values[source].shape[-1:]
    return last and name not in graph.returns and all(isinstance(graph.makers[one], Map | Reduce) for one in graph.readers[name])


def _rows_moved(graph: Dataflow, name: str, source: str) -> np.ndarray | None:
    """Return ids, int32 [rows], so that row i of `name` is row ids[i] of `source`. None if rows are not moved as a whole."""
    size, shape = graph.values[source].size, graph.values[name].shape
    columns = shape[-1] if shape else 1
    if columns < LEAST_COLUMNS or size % columns or max(size, graph.values[name].size) > MOST_MOVED:
        return None
    places = _places(graph, name, {source: np.arange(size, dtype=np.int32).reshape(graph.values[source].shape)})
    rows = places.reshape(-1, columns)
    is_whole = (rows[:, 0] % columns == 0).all() and (rows == rows[:, :1] + np.arange(columns, dtype=np.int32)).all()
    return rows[:, 0] // columns if is_whole else None


def _places(graph: Dataflow, name: str, known: dict[str, np.ndarray]) -> np.ndarray:
    """Return for each element of the value `name` its position in the source, int32.

    `known` has these arrays for the source and for values that were visited before.
    """
    if name not in known:
        node = graph.makers[name]
        given = [_places(graph, one, known) for one in node.inputs]
        match node:
            case Reshape(_, to):
                known[name] = given[0].reshape(to)
            case Transpose(_, order):
                known[name] = given[0].transpose(order)
            case Slice(_, axis, start, stop):
                known[name] = given[0][(slice(None),) * axis + (slice(start, stop),)]
            case Concat(_, axis):
                known[name] = np.concatenate(given, axis)
    return known[name]


def _computed_before(graph: Dataflow, end: str, sources: Mapping[str, str]) -> tuple[str, list[str]]:
    """Find which value's rows to gather, so that row-wise operations before the rearrangement can be computed after it.

    Return (its name, names of these operations in order). The list is empty and the name that of the rearranged value if the
    operations have no reduction, if other nodes read one of their values, or if several values would be gathered.
    """
    source, columns = sources[end], (1, *graph.values[end].shape)[-1]
    moves = {name for name, of in sources.items() if of == source}
    inside: set[str] = {*moves} - {end}
    if not _is_read_within(graph, source, moves) or not all(_is_read_within(graph, one, moves) for one in inside):
        return source, []
    rows, beside = list[str](), dict[str, None]()
    for name, node in reversed(graph.nodes):
        within = {*rows, *moves}
        if _is_row_wise(graph, name, columns) and name not in moves and _is_read_within(graph, name, within):
            rows.insert(0, name)
            beside |= dict.fromkeys(one for one in node.inputs if not _is_vector(graph, one, columns))
    bases = [one for one in beside if one not in rows]
    shape = graph.values[source].shape
    values = [graph.values[one] for one in bases]
    fits = len(bases) == 1 and values[0].shape[-1:] == shape[-1:] and values[0].size == graph.values[source].size
    reduces = any(isinstance(graph.makers[name], Reduce) for name in rows)
    return (bases[0], rows) if fits and reduces and source in rows else (source, [])


def _is_read_within(graph: Dataflow, name: str, within: set[str]) -> bool:
    return name not in graph.returns and bool(graph.readers[name]) and within.issuperset(graph.readers[name])


def _is_row_wise(graph: Dataflow, name: str, columns: int) -> bool:
    """Return whether a value has rows of `columns` floats or of one float, each computed from the same row of other values."""
    node, values = graph.makers[name], graph.values
    last = values[name].shape[-1:]
    if name in graph.whole or values[name].dtype != graph.dtype or last not in ((columns,), (1,)):
        return False
    match node:
        case Map():  # a product's kernel takes maps of only its own result
            made = [graph.makers.get(one) for one in node.inputs if not _is_vector(graph, one, columns)]
            return not any(isinstance(one, Contract) for one in made) or any(isinstance(one, Broadcast) for one in made)
        case Reduce(source, _, axes):
            return axes == (len(values[source].shape) - 1,) and values[source].shape[-1] == columns
        case Reshape(source):
            return values[source].shape[-1:] == last
        case Broadcast(source, to):
            return values[source].shape == (*to[:-1], 1)
    return False


def _is_vector(graph: Dataflow, name: str, columns: int) -> bool:
    node = graph.makers.get(name)
    if not isinstance(node, Broadcast):
        return False
    *outer, last = (1, *graph.values[node.source].shape)
    return last == columns == node.to[-1] and set(outer) <= {1}
