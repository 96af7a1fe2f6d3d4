"""Proof that a network for smaller sizes is a part of the network of the same module for larger sizes.

By induction over the nodes, each value of the smaller network equals the elements of the larger one at the first indices of each
changing factor of its axes; the other elements may have any values. A reduction along a changing axis needs a neutral number
there. The proof lists these needs, and numbers and constants that differ; `opened` makes a network that satisfies them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand
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
)
from gensor_gym.networks.dynamic.axes import (
    Axes,
    Axis,
    Factor,
    NotRestricted,
    extents,
    is_dynamic,
    plain,
    regrouped,
    unified,
    without_pads,
)  # fmt: skip
from gensor_gym.networks.dynamic.padding import pad_of, softmax_pad, uniform
from gensor_gym.networks.network import Network
from gensor_gym.operators.loops import Access

NEUTRAL = {"sum": 0.0, "max": -math.inf, "prod": 1.0}


@dataclass(frozen=True)
class Need:
    """A number that a node needs outside of the smaller value: node, index of its operand, axis of the operand."""

    node: str
    place: int
    axis: int
    number: float


@dataclass
class Restriction:
    """The result of a proof, by names of values of the larger network."""

    axes: dict[str, Axes] = field(default_factory=dict)
    """Name of a value -> its axes."""
    needs: set[Need] = field(default_factory=set)
    """Numbers that reductions need, and that values do not have by themselves."""
    numbers: dict[tuple[str, int], float] = field(default_factory=dict)
    """(map, index of a number in its expression) -> number of the smaller network, where they differ."""
    moves: dict[str, np.ndarray] = field(default_factory=dict)
    """Slice, concatenation or padding -> for each index of its axis the index that has the element in the larger network: of the
    source of a slice, else of the node's value."""
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    """Constant that is not a part of the larger one's -> array of the smaller network."""
    returned: list[list[tuple[int, int]]] = field(default_factory=list)
    """Extents in both networks of the factors of each output's axes."""


def restriction(small: Network, big: Network) -> Restriction:
    """Prove that `small` is a part of `big`. NotRestricted names the node for which the proof fails."""
    proof = _Proof(small, big)
    for given, wanted in _zipped("inputs", small.inputs, big.inputs):
        proof.add_input(given, wanted)
    for given, wanted in _zipped("constants", *([v for v in one.graph.inputs if v.constant] for one in (small, big))):
        proof.add_input(given, wanted)
    for (name, node), (larger, other) in _zipped("nodes", small.graph.nodes, big.graph.nodes):
        try:
            proof.add(name, node, larger, other)
        except NotRestricted as error:
            raise NotRestricted(f"{big.origins.get(larger, larger)}: {error}") from error
    graph, other = small.graph, big.graph
    whole = {proof.names[name] for name in graph.whole}
    rounded = {(proof.names[name], kind) for name, kind in graph.rounded}
    returns = tuple(proof.names[name] for name in graph.returns)
    if (whole, rounded, returns) != (set(other.whole), set(other.rounded), other.returns):
        raise NotRestricted("types of values or outputs change with the sizes")
    proof.add_outputs(other.returns)
    return proof.found


def _zipped(what: str, small: Sequence[Any], big: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    if len(small) != len(big):
        raise NotRestricted(f"{len(small)} {what} for the smaller sizes, {len(big)} for the larger")
    return zip(small, big, strict=True)


_RULES = {
    Map: "_map", Reduce: "_reduce", Broadcast: "_broadcast", Transpose: "_transpose", Reshape: "_reshape", Slice: "_slice",
    Gather: "_gather", Scatter: "_scatter", Concat: "_concat", Pad: "_pad_node", Contract: "_contract",
}  # fmt: skip
"""Class of a node -> method of `_Proof` that returns the axes of its value."""


class _Proof:
    def __init__(self, small: Network, big: Network) -> None:
        self.small, self.big, self.found = small, big, Restriction()
        self.names: dict[str, str] = {}
        """Name of a value of the smaller network -> name of the larger network's."""
        self.shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """Name of a value of the larger network -> its shape in both."""

    def add_input(self, given: Any, wanted: Any) -> None:
        if (given.dtype, given.constant, len(given.shape)) != (wanted.dtype, wanted.constant, len(wanted.shape)):
            raise NotRestricted(f"input {wanted.name} changes its type or number of axes with the sizes")
        name = self.names[given.name] = wanted.name
        self.shapes[name] = given.shape, wanted.shape
        pairs = list(zip(given.shape, wanted.shape, strict=True))
        if any(extent > most for extent, most in pairs):
            raise NotRestricted(f"{name} is {list(given.shape)} for the smaller sizes, {list(wanted.shape)} for the larger")
        pads: list[float | None] = [0.0] * len(pairs)
        if given.constant:
            one, other = self.small.constants[given.name], self.big.constants[name]
            part = other[tuple(map(slice, given.shape))]
            if _is_same(one, part) or np.array_equal(one, part, equal_nan=one.dtype.kind == "f"):
                pads = [uniform(other, given.shape, axis) if n != most else None for axis, (n, most) in enumerate(pairs)]
            else:
                self.found.constants[name], pads = one, [None] * len(pairs)
        self.found.axes[name] = tuple(plain(*pair, pad) for pair, pad in zip(pairs, pads, strict=True))

    def add(self, name: str, node: Node, larger: str, other: Node) -> None:
        if type(node) is not type(other) or tuple(self.names[one] for one in node.inputs) != other.inputs:
            raise NotRestricted("its computation changes with the sizes")
        self.names[name] = larger
        small, big = self.shapes[larger] = self.small.graph.values[name].shape, self.big.graph.values[larger].shape
        if len(small) != len(big):
            raise NotRestricted("its number of axes changes with the sizes")
        rules: Any = getattr(self, _RULES[type(node)])
        axes: Axes = rules(larger, node, other, small, big)
        checked = zip(axes, small, big, strict=True)
        self.found.axes[larger] = tuple(plain(a, b) if axis is None and a == b else axis for axis, a, b in checked)

    def add_outputs(self, names: Sequence[str]) -> None:
        for name in names:
            axes = [self._known(name, axis) for axis in range(len(self._of(name)))]
            self.found.returned.append([factor.extents for axis in axes for factor in axis])

    def _of(self, name: str) -> Axes:
        return self.found.axes[name]

    def _known(self, name: str, axis: int) -> tuple[Factor, ...]:
        """Return the factors of an axis; if any division serves, all indices of the smaller value come first."""
        found = self._of(name)[axis]
        if found is not None:
            return found
        return plain(*self._shape(name, axis))

    def _need(self, node: str, place: int, axis: int, number: float) -> None:
        """Require that an operand has a number outside of the smaller value. Record a `Need` if it does not have it."""
        source = self.big.nodes[node].inputs[place]
        factors = self._known(source, axis)
        if all(factor.pad == number for factor in factors if factor.is_dynamic):
            return
        if self.big.graph.type_of(node) != "float32" or self.big.graph.values[source].dtype == "int8":
            raise NotRestricted("it reduces integers along an axis of changing size")
        self.found.needs.add(Need(node, place, axis, number))

    def _map(self, name: str, node: Map, other: Map, small: Sequence[int], big: Sequence[int]) -> Axes:
        for place, (one, number) in enumerate(_numbers(node.expression, other.expression, self.names)):
            if one != number and not (math.isnan(one) and math.isnan(number)):
                if name in self.big.graph.whole:
                    raise NotRestricted("an integer changes with the sizes")
                self.found.numbers[name, place] = one
        given = {one: self._of(one) for one in other.inputs}
        axes = [unified([own[axis] for own in given.values()]) for axis in range(len(big))]
        return tuple(self._padded(name, other, axis, factors) for axis, factors in enumerate(axes))

    def _padded(self, name: str, node: Map, axis: int, factors: Axis) -> Axis:
        """Return an axis of a map's value with the numbers outside of the smaller value, as far as they are known."""
        changes = any(changed == name for changed, _ in self.found.numbers)
        if factors is None or changes or sum(factor.is_dynamic for factor in factors) != 1:
            return factors
        known = {one: self._pad(one, axis) for one in node.inputs}
        hard = {one: self._hard(one, axis) for one in node.inputs}
        pad, soft = pad_of(node.expression, hard), False
        if pad is None:
            pad, soft = softmax_pad(name, axis, self.big.nodes, lambda one: self._hard(one, axis)), True
            copied = known[node.expression.name] if isinstance(node.expression, Operand) else None
            pad = copied.pad if copied is not None and pad is None else pad
        return tuple(replace(one, pad=pad, is_soft=soft and pad is not None) if one.is_dynamic else one for one in factors)

    def _pad(self, name: str, axis: int) -> Factor | None:
        """Return the changing factor of an axis, None unless there is exactly one."""
        found = [factor for factor in self._of(name)[axis] or () if factor.is_dynamic]
        return found[0] if len(found) == 1 else None

    def _hard(self, name: str, axis: int) -> float | None:
        factor = self._pad(name, axis)
        return None if factor is None or factor.is_soft else factor.pad

    def _reduce(self, name: str, node: Reduce, other: Reduce, small: Sequence[int], big: Sequence[int]) -> Axes:
        if (node.body, node.axes) != (other.body, other.axes):
            raise NotRestricted("its reduction changes with the sizes")
        axes, number = list(self._of(other.source)), NEUTRAL[other.body]
        for axis in other.axes:
            if is_dynamic(self._known(other.source, axis)):
                self._need(name, 0, axis, number)
                if other.body == "max":  # later readers read the changed value
                    own, known = self._of(other.source), self._known(other.source, axis)
                    changed = tuple(replace(one, pad=number, is_soft=False) if one.is_dynamic else one for one in known)
                    self.found.axes[other.source] = (*own[:axis], changed, *own[axis + 1 :])
            axes[axis] = ()
        return tuple(map(without_pads, axes))

    def _broadcast(self, name: str, node: Broadcast, other: Broadcast, small: Sequence[int], big: Sequence[int]) -> Axes:
        given = self._of(other.source)
        shapes = [self._shape(other.source, place) for place in range(len(given))]
        lead = len(big) - len(given)
        found: list[Axis] = [None] * lead
        for axis, own, pair in zip(range(lead, len(big)), given, shapes, strict=True):
            wanted = small[axis], big[axis]
            if pair != (1, 1) and pair != wanted:
                raise NotRestricted("it repeats an axis of changing size")
            found.append(None if pair == (1, 1) and wanted != (1, 1) else own)
        return tuple(found)

    def _shape(self, name: str, axis: int) -> tuple[int, int]:
        small, big = self.shapes[name]
        return small[axis], big[axis]

    def _transpose(self, name: str, node: Transpose, other: Transpose, small: Sequence[int], big: Sequence[int]) -> Axes:
        if node.order != other.order:
            raise NotRestricted("its order of axes changes with the sizes")
        return tuple(self._of(other.source)[axis] for axis in other.order)

    def _reshape(self, name: str, node: Reshape, other: Reshape, small: Sequence[int], big: Sequence[int]) -> Axes:
        known = tuple(self._known(other.source, axis) for axis in range(len(self._of(other.source))))
        return regrouped(known, small, big)

    def _slice(self, name: str, node: Slice, other: Slice, small: Sequence[int], big: Sequence[int]) -> Axes:
        own, axis = self._of(other.source), other.axis
        factors = self._line(other.source, axis)
        if node.axis != axis:
            raise NotRestricted("its axis changes with the sizes")
        length, most, pad = small[axis], big[axis], factors[0].pad if factors and other.stop == factors[0].big else None
        if length > most:
            raise NotRestricted("it becomes smaller for larger sizes")
        if node.start != other.start:
            self._move(name, node.start + np.arange(length), most)
            pad = None
        return (*own[:axis], plain(length, most, pad if length != most else None), *own[axis + 1 :])

    def _line(self, name: str, axis: int) -> tuple[Factor, ...]:
        """Return the factors of an axis, whose smaller elements come first. NotRestricted for a product of changing sizes."""
        found = self._known(name, axis)
        if is_dynamic(found) and len(found) != 1:
            raise NotRestricted("it divides a product of changing sizes")
        return found

    def _move(self, name: str, ids: np.ndarray, most: int) -> None:
        """Record that the elements of an axis, of extent `most` in the larger network, come from the indices `ids`."""
        self.found.moves[name] = np.concatenate([ids, np.zeros(most - len(ids), np.int64)])

    def _gather(self, name: str, node: Gather, other: Gather, small: Sequence[int], big: Sequence[int]) -> Axes:
        table = self._known(other.table, 0)
        if is_dynamic(table) and len(table) != 1:
            raise NotRestricted("rows of a table whose number is a product of changing sizes")
        return (*map(without_pads, self._of(other.ids)), *self._of(other.table)[1:])

    def _scatter(self, name: str, node: Scatter, other: Scatter, small: Sequence[int], big: Sequence[int]) -> Axes:
        if (node.body, node.start) != (other.body, other.start):
            raise NotRestricted("how it joins rows changes with the sizes")
        rank = len(self._of(other.ids))
        for axis in range(rank):
            if is_dynamic(self._known(other.source, axis)) or is_dynamic(self._known(other.ids, axis)):
                self._need(name, 0, axis, NEUTRAL[other.body])
        return (plain(small[0], big[0]), *map(without_pads, self._of(other.source)[rank:]))

    def _concat(self, name: str, node: Concat, other: Concat, small: Sequence[int], big: Sequence[int]) -> Axes:
        if node.axis != other.axis:
            raise NotRestricted("its axis changes with the sizes")
        parts = [(self._line(one, other.axis), self._shape(one, other.axis)) for one in other.sources]
        given = [self._of(one) for one in other.sources]
        axes = [unified([own[axis] for own in given]) for axis in range(len(big)) if axis != other.axis]
        joined = self._joined(name, [pair for _, pair in parts], parts[-1][0], small[other.axis], big[other.axis])
        return (*axes[: other.axis], joined, *axes[other.axis :])

    def _joined(self, name: str, parts: Sequence[tuple[int, int]], last: Sequence[Factor], small: int, big: int) -> Axis:
        """Return the axis along which `parts`, given by their extents in both networks, are joined."""
        if all(one == other for one, other in parts[:-1]):
            return plain(small, big, last[0].pad if is_dynamic(tuple(last)) else None)
        starts = np.cumsum([0, *(most for _, most in parts)])
        self._move(name, np.concatenate([start + np.arange(n) for start, (n, _) in zip(starts, parts, strict=False)]), big)
        return plain(small, big)

    def _pad_node(self, name: str, node: Pad, other: Pad, small: Sequence[int], big: Sequence[int]) -> Axes:
        if (node.axis, node.before, node.after, node.value) != (other.axis, other.before, other.after, other.value):
            raise NotRestricted("its padding changes with the sizes")
        own, axis = list(map(without_pads, self._of(other.source))), other.axis
        self._line(other.source, axis)
        parts = [(other.before, other.before), self._shape(other.source, axis), (other.after, other.after)]
        own[axis] = self._joined(name, parts if other.after else parts[:2], (), small[axis], big[axis])
        return tuple(own)

    def _contract(self, name: str, node: Contract, other: Contract, small: Sequence[int], big: Sequence[int]) -> Axes:
        one, op = node.operator, other.operator
        if not _are_alike(one, op):
            raise NotRestricted(f"its computation changes with the sizes: {one} and {op}")
        of_loop: dict[int, list[Axis]] = {axis: [] for axis in range(len(op.axes))}
        reads: list[tuple[int, int, int]] = []
        for place, access in enumerate(op.reads):
            for dimension, axis in enumerate(_movers(access, self._of(other.sources[place]))):
                if axis is not None:
                    of_loop[axis].append(self._of(other.sources[place])[dimension])
                    reads.append((axis, place, dimension))
        loops = {axis: self._loop(one.axes[axis].extent, op.axes[axis].extent, several) for axis, several in of_loop.items()}
        self._products(name, other, reads)
        found: list[Axis] = []
        for dimension, axis in enumerate(_movers(op.write, None)):
            pair = small[dimension], big[dimension]
            found.append(loops[axis] if axis is not None else plain(*pair))
            if axis is None and pair[0] != pair[1]:
                raise NotRestricted("a window along an axis of changing size")
        return tuple(found)

    def _loop(self, small: int, big: int, several: Sequence[Axis]) -> Axis:
        """Return the factors of an operator's loop that indexes the axes `several` of its operands."""
        found = unified(several) if several else plain(small, big)
        if found is not None and is_dynamic(found) and (not several or extents(found) != (small, big)):
            raise NotRestricted("a window along an axis of changing size")
        return found if found is None or is_dynamic(found) else plain(small, big)

    def _products(self, name: str, node: Contract, reads: Sequence[tuple[int, int, int]]) -> None:
        """Require that operands are neutral along the summed axes. `reads` are (loop, operand, axis of the operand)."""
        op = node.operator
        for axis in op.reduce:
            along = [(place, dimension) for one, place, dimension in reads if one == axis]
            if not any(is_dynamic(self._known(node.sources[place], dimension)) for place, dimension in along):
                continue
            if op.body == "sum" and op.divisor != 1:
                raise NotRestricted("a mean along an axis of changing size")
            for place, dimension in along:
                self._need(name, place, dimension, NEUTRAL["max" if op.body == "max" else "sum"])



def _numbers(one: Expression, other: Expression, names: Mapping[str, str]) -> Iterator[tuple[float, float]]:
    """Yield the numbers of two expressions side by side. NotRestricted if the expressions differ in anything else."""
    if isinstance(one, Constant) and isinstance(other, Constant):
        yield one.value, other.value
    elif isinstance(one, Call) and isinstance(other, Call) and one.function == other.function:
        for part, more in zip(one.arguments, other.arguments, strict=True):
            yield from _numbers(part, more, names)
    elif not (isinstance(one, Operand) and isinstance(other, Operand) and names[one.name] == other.name):
        raise NotRestricted("its expression changes with the sizes")


def _is_same(one: np.ndarray, part: np.ndarray) -> bool:
    """Return whether two arrays are the same memory, which need not be compared."""
    return one.shape == part.shape and one.strides == part.strides and one.ctypes.data == part.ctypes.data


def _are_alike(one: Any, other: Any) -> bool:
    """Return whether two operators differ in extents only."""

    def rest(op: Any) -> tuple[Any, ...]:
        accesses = [(access.coefficients, access.offset, len(access.view)) for access in (*op.reads, op.write)]
        kinds = [(axis.name, axis.kind) for axis in op.axes]
        return op.name, kinds, accesses, op.body, op.dtype, op.function, op.divisor, op.pad_value, op.epilogue

    return rest(one) == rest(other)


def _movers(access: Access, axes: Axes | None) -> list[int | None]:
    """Return for each dimension of an access the loop whose index it has; None for a window or an index that is fixed.

    NotRestricted if a window is along an axis of changing size.
    """
    if access.view != access.tensor.shape:
        raise NotRestricted("an access to an array of another shape")
    found: list[int | None] = []
    for dimension, (row, offset) in enumerate(zip(access.coefficients, access.offset, strict=True)):
        moving = [axis for axis, coefficient in enumerate(row) if coefficient]
        simple = len(moving) == 1 and row[moving[0]] == 1 and offset == 0
        if not simple and axes is not None and (axes[dimension] is None or is_dynamic(axes[dimension])):
            raise NotRestricted("a window along an axis of changing size")
        found.append(moving[0] if simple else None)
    return found
