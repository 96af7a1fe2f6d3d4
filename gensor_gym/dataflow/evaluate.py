"""Evaluates a graph in float64, with a bound on the error of a correct kernel. int64 nodes are exact."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gensor_gym.dataflow.bounds import UNDERFLOW, Bounded, enclosed, exact, gamma, joined_rows, largest, rounded, stored, summed
from gensor_gym.dataflow.expressions import Call, Operand, bounded
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
    Slice,
    Transpose,
)  # fmt: skip
from gensor_gym.dataflow.whole import JOINED, computed_node
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.kinds.winograd import magnitude

UNIT = {"float32": 2.0**-24}
"""Data type -> unit roundoff of a kernel's arithmetic in it."""


def evaluate(graph: Dataflow, inputs: Sequence[np.ndarray]) -> tuple[Bounded, ...]:
    """Compute the outputs of a graph in float64, with bounds on the error of a correct kernel.

    `inputs` are in the graph's order. ValueError for a wrong number of inputs or wrong shapes.
    """
    if len(inputs) != len(graph.inputs):
        raise ValueError(f"{graph.name}: {len(inputs)} arrays given, expected {len(graph.inputs)}")
    known: dict[str, Bounded] = {}
    for value, array in zip(graph.inputs, inputs, strict=True):
        if array.shape != value.shape:
            raise ValueError(f"{graph.name}: {value.name} has shape {list(array.shape)}, expected {list(value.shape)}")
        known[value.name] = exact(array if array.dtype.kind == "i" else np.asarray(decode(array, value.dtype), np.float64))
    left = {name: len(readers) for name, readers in graph.readers.items()}
    for name, node in graph.nodes:
        shape, dtype = graph.values[name].shape, graph.values[name].dtype
        found = evaluate_node(node, known, name in graph.whole)
        found = stored(found, dtype) if dtype in HALVES else found
        if dtype == "int8":  # quantised values are integers, so errors are too
            found = Bounded(found.value, np.floor(found.error))
        known[name] = Bounded(np.broadcast_to(found.value, shape), np.broadcast_to(found.error, shape))
        for source in dict.fromkeys(node.inputs):  # frees a value that no later node reads
            left[source] -= 1
            if not left[source] and source not in graph.returns:
                del known[source]
    return tuple(known[name] for name in graph.returns)


def evaluate_node(node: Node, known: Mapping[str, Bounded], is_whole: bool = False) -> Bounded:
    """Compute the value of one node from the values `known` of its inputs. A node that computes in int64 has no error."""
    if is_whole:
        return exact(computed_node(node, {one: known[one].value for one in node.inputs}))
    return _EVALUATE[type(node)](node, known if isinstance(node, VIEWS) else {one: _as_float(known[one]) for one in node.inputs})


def _as_float(given: Bounded) -> Bounded:
    """Return the values in float64. int64 is rounded to float32, as kernels do when they load it."""
    is_integer = given.value.dtype.kind == "i"
    return Bounded(given.value.astype(np.float32).astype(np.float64), given.error) if is_integer else given


def _map(node: Map, known: Mapping[str, Bounded]) -> Bounded:
    return bounded(node.expression, known, UNIT["float32"])


def _reduce(node: Reduce, known: Mapping[str, Bounded]) -> Bounded:
    source = known[node.source]
    return largest(source, node.axes) if node.body == "max" else summed(source, node.axes, UNIT["float32"])


def _contract(node: Contract, known: Mapping[str, Bounded]) -> Bounded:
    """Compute a product, sum or maximum, with error bounds.

    An error is the operator applied to the errors of one source and the absolute values of the other.
    """
    op = node.operator.renamed(epilogue=(), pad_value=0.0)  # padding has no error
    sources, added = [known[name] for name in node.sources[: len(op.reads)]], node.sources[len(op.reads) :]
    if op.body == "max":
        return enclosed(node.operator.reference, sources[0])
    sizes = [np.abs(source.value) for source in sources]
    errors = [
        op.reference(*(source.error if place == moved else size for place, size in enumerate(sizes)))
        for moved, source in enumerate(sources)
    ]
    evaluated = functools.partial(magnitude, op) if op.winograd else op.reference
    largest_of = evaluated(*(size + source.error for size, source in zip(sizes, sources, strict=True)))
    count = op.points // op.output.size
    second = op.reference(*(source.error for source in sources)) if len(sources) == 2 else 0.0
    own = gamma(count + 1, UNIT["float32"]) * largest_of + count * UNDERFLOW if op.accumulator == "float32" else np.float64(0.0)
    value = node.operator.reference(*(source.value for source in sources), *(known[name].value for name in added))
    error = np.asarray(sum(errors) + second + own)
    return rounded(Bounded(value, error), UNIT["float32"], 0)


def _broadcast(node: Broadcast, array: np.ndarray) -> np.ndarray:
    return np.broadcast_to(array, node.to)


def _slice(node: Slice, array: np.ndarray) -> np.ndarray:
    return array[(slice(None),) * node.axis + (slice(node.start, node.stop),)]


def _moves(move: Callable[[Any, np.ndarray], np.ndarray]) -> Callable[[Any, Mapping[str, Bounded]], Bounded]:
    """Return a function that evaluates a node which only rearranges elements: it applies `move` to values and errors."""
    return lambda node, known: Bounded(move(node, known[node.source].value), move(node, known[node.source].error))


def _gather(node: Gather, known: Mapping[str, Bounded]) -> Bounded:
    """Select rows of the table. An uncertain id may select any row, so its row has an infinite error."""
    table, ids = known[node.table], known[node.ids]
    count = np.shape(table.value)[0]
    inside = (ids.value >= 0) & (ids.value < count)
    rows = np.where(inside, ids.value, 0).astype(np.int64)
    apart = (...,) + (None,) * (np.ndim(table.value) - 1)
    value = np.where(inside[apart], table.value[rows], np.nan)
    error = np.where((ids.error < 0.5)[apart], table.error[rows], np.inf)
    return Bounded(value, np.where(inside[apart], error, 0.0))


def _scatter(node: Scatter, known: Mapping[str, Bounded]) -> Bounded:
    """Join rows in any order. If an id is uncertain, its row may be joined anywhere, so all errors are infinite."""
    ids, source = known[node.ids], known[node.source]
    count, rest = int(np.size(ids.value)), np.shape(source.value)[np.ndim(ids.value) :]
    places = np.where(np.isnan(ids.value), -1.0, ids.value).reshape(count)
    given = Bounded(np.reshape(source.value, (count, *rest)), np.reshape(source.error, (count, *rest)))
    if np.any(ids.error >= 0.5):
        value = joined_rows(JOINED[node.body], given.value, places, node.rows, node.start)
        return Bounded(value, np.full(value.shape, np.inf))
    if node.body == "max":
        return enclosed(lambda array: joined_rows(np.maximum, array, places, node.rows, node.start), given)
    if node.body == "prod":
        return _multiplied(node, given, places)
    with np.errstate(all="ignore"):
        value, error = (joined_rows(np.add, array, places, node.rows, first) for array, first in zip(
            (given.value, given.error), (node.start, 0.0), strict=True))  # fmt: skip
        size = joined_rows(np.add, np.abs(given.value) + given.error, places, node.rows, abs(node.start))
        terms = joined_rows(np.add, np.ones(count), places, node.rows, 0.0).reshape(-1, *[1] * len(rest))
        own = gamma(int(terms.max()), UNIT["float32"]) * size + terms * UNDERFLOW
        own = np.where((terms == 0) | ((terms == 1) & (node.start == 0.0)), 0.0, own)
        if not np.any(given.error) and np.array_equal(np.rint(given.value), given.value) and node.start == round(node.start):
            own = np.where(size * UNIT["float32"] <= 1.0, 0.0, own)
    return rounded(Bounded(value, error + own), UNIT["float32"], 0)


def _multiplied(node: Scatter, given: Bounded, places: np.ndarray) -> Bounded:
    """Multiply rows of one id in order, because a product of some may leave float32's range."""
    made = exact(np.full((node.rows, *given.value.shape[1:]), node.start))
    left = np.flatnonzero((places >= 0) & (places < node.rows))
    while len(left):
        chosen, first = np.unique(places[left].astype(np.int64), return_index=True)
        parts = {"a": made, "b": given}
        taken = {name: Bounded(one.value[at], one.error[at]) for (name, one), at in zip(
            parts.items(), (chosen, left[first]), strict=True)}  # fmt: skip
        product = bounded(Call("multiply", (Operand("a"), Operand("b"))), taken, UNIT["float32"])
        value, error = made.value.copy(), np.array(made.error)
        value[chosen], error[chosen] = product.value, product.error
        made, left = Bounded(value, error), np.delete(left, first)
    return made


def _concat(node: Concat, known: Mapping[str, Bounded]) -> Bounded:
    sources = [known[name] for name in node.sources]
    values, errors = [source.value for source in sources], [source.error for source in sources]
    return Bounded(np.concatenate(values, node.axis), np.concatenate(errors, node.axis))


def _pad(node: Pad, known: Mapping[str, Bounded]) -> Bounded:
    source = known[node.source]
    width = [(node.before, node.after) if axis == node.axis else (0, 0) for axis in range(np.ndim(source.value))]
    return Bounded(np.pad(source.value, width, constant_values=node.value), np.pad(source.error, width))


_EVALUATE: dict[type, Callable[[Any, Mapping[str, Bounded]], Bounded]] = {
    Map: _map, Reduce: _reduce, Contract: _contract, Gather: _gather, Scatter: _scatter, Concat: _concat, Pad: _pad,
    Broadcast: _moves(_broadcast),
    Transpose: _moves(lambda node, array: np.transpose(array, node.order)),
    Reshape: _moves(lambda node, array: np.reshape(array, node.to)),
    Slice: _moves(_slice),
}  # fmt: skip
