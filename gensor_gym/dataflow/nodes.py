"""Parts of a dataflow graph as frozen plain data: values, and nodes that each compute one value from others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np

from gensor_gym.dataflow.expressions import Expression, operands, renamed
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.types import Operator, Tensor

Shape = tuple[int, ...]
MOST_ROWS = 1 << 24
"""Largest number of rows of a table, because computed row indices are float32."""
Reduction = Literal["sum", "max"]
Joining = Literal["sum", "max", "prod"]
"""How `Scatter` joins the rows of one id."""
HALVES = ("bfloat16", "float16")
"""Floating-point types of 16 bits. Kernels convert them to float32, compute, and round the values that they store."""
STORED = (*HALVES, "int8")
"""Data types in which the values of maps may be stored. Products of these types need operands of the type."""
DTYPES = ("float32", *STORED, "int32", "int64", "bool")
"""Data types of inputs. Nodes in float32 round integers, which is exact up to 2**24; bools are 0 or 1."""


@dataclass(frozen=True)
class Triangle:
    """The elements of a constant matrix: `below` in row r up to column r + `diagonal`, and `above` in the columns after it.

    The mask of causal attention is one, with 0 below and minus infinity above, or true and false. Kernels of attention skip what
    such a mask hides, and do not read it. `diagonal` is 0 or more.
    """

    diagonal: int
    below: float
    above: float

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the elements, float64, of a matrix of this shape; leading axes repeat it."""
        rows, columns = shape[-2:]
        return np.broadcast_to(np.where(np.tri(rows, columns, self.diagonal, dtype=bool), self.below, self.above), shape)

    def visible(self, rows: int, columns: int) -> int:
        """Return how many elements of a matrix of `rows` x `columns` are on or below the diagonal."""
        steps = min(rows, max(0, columns - self.diagonal - 1))  # rows that do not reach the last column
        return steps * (self.diagonal + 1) + steps * (steps - 1) // 2 + (rows - steps) * columns

    @classmethod
    def of(cls, array: np.ndarray, dtype: str) -> Triangle | None:
        """Return the triangle whose elements a constant of the data type `dtype` has; None if it has others.

        All axes but the last two have extent 1. Both numbers of a triangle appear in its first row.
        """
        rows, columns = array.shape[-2:] if array.ndim > 1 else (1, 1)
        if array.size != rows * columns or rows == 1 or columns == 1:
            return None
        matrix = array.reshape(rows, columns)
        below, first = matrix[0, 0], matrix[0]
        diagonal = int(np.argmax(first != below)) - 1
        if diagonal < 0 or not (first[diagonal + 1 :] == first[-1]).all():  # so that weights are not compared as a whole
            return None
        ends = [float(decode(np.array([one]), dtype)[0]) for one in (below, first[-1])]
        seen = np.tri(rows, columns, diagonal, dtype=bool)
        is_one = not any(map(math.isnan, ends)) and np.array_equal(matrix, np.where(seen, below, first[-1]))
        return cls(diagonal, *ends) if is_one else None


@dataclass(frozen=True)
class Value(Tensor):
    """A named row-major tensor in a graph: an input, or the result of a node."""

    dtype: str = "float32"
    constant: bool = False
    """Whether the value is a parameter, equal at every call, so that kernels may pack it once."""
    triangle: Triangle | None = None
    """The elements, if the value is a constant of this form, which kernels need not read."""

    def __repr__(self) -> str:
        """Return the fields as text, which keys of caches and digests contain; a missing triangle or pitch is not mentioned."""
        last = "" if self.triangle is None else f", triangle={self.triangle!r}"
        last += f", pitch={self.pitch}" if self.pitch else ""
        return f"Value(name={self.name!r}, shape={self.shape!r}, dtype={self.dtype!r}, constant={self.constant!r}{last})"

    def as_constant(self) -> Value:
        """Return the tensor as a parameter, which has the same elements at every call."""
        return dataclasses.replace(self, constant=True)


@dataclass(frozen=True)
class Map:
    """Node that applies a scalar expression to the elements at the same index of all operands, which have one shape."""

    expression: Expression

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values that the node reads, in order of appearance."""
        return tuple(operands(self.expression))

    def reading(self, names: Mapping[str, str]) -> Self:
        """Return the node with other inputs. `names` maps each old name to the new name."""
        return dataclasses.replace(self, expression=renamed(self.expression, names))

    def shape(self, *given: Shape) -> Shape:
        """Return the shape of the node's value; ValueError unless the operands have the same shape."""
        if len(set(given)) != 1:
            raise ValueError(f"a map of shapes {_several(given)}: expected one shape, by broadcast where needed")
        return given[0]


@dataclass(frozen=True)
class _OfOne:
    source: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values that the node reads."""
        return (self.source,)

    def reading(self, names: Mapping[str, str]) -> Self:
        """Return the node with another input. `names` maps the old name to the new name."""
        return dataclasses.replace(self, source=names[self.source])


@dataclass(frozen=True)
class Reduce(_OfOne):
    """Node that takes sums or maxima along axes, which keep extent 1."""

    body: Reduction
    axes: tuple[int, ...]

    def shape(self, given: Shape) -> Shape:
        """Return the shape of the node's value; ValueError unless the axes exist, are in order, and are one or more."""
        if not self.axes or list(self.axes) != sorted(set(self.axes)) or not set(self.axes) <= set(range(len(given))):
            raise ValueError(f"axes {list(self.axes)} of shape {list(given)}: expected some of 0 to {len(given) - 1}, in order")
        return tuple(1 if axis in self.axes else extent for axis, extent in enumerate(given))


@dataclass(frozen=True)
class Broadcast(_OfOne):
    """Node that repeats elements along axes of extent 1 and along new leading axes, as in NumPy's broadcasting."""

    to: Shape

    def shape(self, given: Shape) -> Shape:
        """Return the shape `to` of the node's value; ValueError if NumPy could not broadcast to it."""
        last = self.to[len(self.to) - len(given) :]
        if len(given) > len(self.to) or any(extent not in (1, wanted) for extent, wanted in zip(given, last, strict=True)):
            raise ValueError(f"shape {list(given)} does not repeat to {list(self.to)}: expected its last extents, or 1 there")
        return self.to


@dataclass(frozen=True)
class Transpose(_OfOne):
    """Node that changes the order of axes: axis i of the value is axis `order[i]` of the source."""

    order: tuple[int, ...]

    def shape(self, given: Shape) -> Shape:
        """Return the shape of the node's value; ValueError unless `order` has every axis once."""
        if sorted(self.order) != list(range(len(given))):
            raise ValueError(f"order {list(self.order)} of shape {list(given)}: expected each of 0 to {len(given) - 1} once")
        return tuple(given[axis] for axis in self.order)


@dataclass(frozen=True)
class Reshape(_OfOne):
    """Node that gives the same elements, in the same order, another shape."""

    to: Shape

    def shape(self, given: Shape) -> Shape:
        """Return the shape `to` of the node's value; ValueError if it has another number of elements."""
        if math.prod(given) != math.prod(self.to):
            raise ValueError(f"shape {list(given)} to {list(self.to)}: expected {math.prod(given)} elements")
        return self.to


@dataclass(frozen=True)
class Slice(_OfOne):
    """Node that takes the elements `start` to `stop` - 1 along one axis."""

    axis: int
    start: int
    stop: int

    def shape(self, given: Shape) -> Shape:
        """Return the shape of the node's value; ValueError for an axis or bounds outside the source."""
        _check_axis(self.axis, given)
        if not 0 <= self.start < self.stop <= given[self.axis]:
            extent = given[self.axis]
            raise ValueError(f"slice {self.start} to {self.stop} of extent {extent}: expected 0 <= start < stop <= extent")
        return (*given[: self.axis], self.stop - self.start, *given[self.axis + 1 :])


@dataclass(frozen=True)
class Gather:
    """Node that selects rows of a table: element (i.., j..) is `table[ids[i..], j..]`, or NaN for an id outside the table."""

    table: str
    ids: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values that the node reads."""
        return (self.table, self.ids)

    def reading(self, names: Mapping[str, str]) -> Self:
        """Return the node with other inputs. `names` maps each old name to the new name."""
        return dataclasses.replace(self, table=names[self.table], ids=names[self.ids])

    def shape(self, table: Shape, ids: Shape) -> Shape:
        """Return the shape of the node's value; ValueError for a table without axes or with more than `MOST_ROWS` rows."""
        if not table or table[0] > MOST_ROWS:
            raise ValueError(f"rows of a table of shape {list(table)}: expected 1 to {MOST_ROWS}")
        return (*ids, *table[1:])


@dataclass(frozen=True)
class Scatter:
    """Node that joins rows of its source to the rows of a table that ids select: the inverse of `Gather`.

    Element (r, j..) is `start`, joined with every `source[i.., j..]` whose id is r, in the order of i. An id outside the table
    joins nothing.
    """

    source: str
    ids: str
    rows: int
    body: Joining
    start: float

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values that the node reads."""
        return (self.source, self.ids)

    def reading(self, names: Mapping[str, str]) -> Self:
        """Return the node with other inputs. `names` maps each old name to the new name."""
        return dataclasses.replace(self, source=names[self.source], ids=names[self.ids])

    def shape(self, source: Shape, ids: Shape) -> Shape:
        """Return the shape of the node's value; ValueError unless every id has a row, and for more than `MOST_ROWS` rows."""
        if not 0 < self.rows <= MOST_ROWS or source[: len(ids)] != ids:
            expected = f"expected one for each id, and 1 to {MOST_ROWS} rows"
            raise ValueError(f"rows {list(source)} for ids {list(ids)} of {self.rows} rows: {expected}")
        return (self.rows, *source[len(ids) :])


@dataclass(frozen=True)
class Concat:
    """Node that joins values along an axis."""

    sources: tuple[str, ...]
    axis: int

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values that the node reads."""
        return self.sources

    def reading(self, names: Mapping[str, str]) -> Self:
        """Return the node with other inputs. `names` maps each old name to the new name."""
        return dataclasses.replace(self, sources=tuple(names[source] for source in self.sources))

    def shape(self, *given: Shape) -> Shape:
        """Return the shape of the node's value; ValueError without operands, or if the extents of other axes differ."""
        if not given:
            raise ValueError("concat of no values: expected one at least")
        _check_axis(self.axis, given[0])
        rest = {(len(shape), shape[: self.axis], shape[self.axis + 1 :]) for shape in given}
        if len(rest) != 1:
            raise ValueError(f"concat of shapes {_several(given)} along {self.axis}: expected the same other extents")
        return (*given[0][: self.axis], sum(shape[self.axis] for shape in given), *given[0][self.axis + 1 :])


@dataclass(frozen=True)
class Pad(_OfOne):
    """Node that adds a constant before and after the elements along one axis."""

    axis: int
    before: int
    after: int
    value: float = 0.0

    def shape(self, given: Shape) -> Shape:
        """Return the shape of the node's value; ValueError for an axis that does not exist or a negative padding."""
        _check_axis(self.axis, given)
        if self.before < 0 or self.after < 0:
            raise ValueError(f"padding of {self.before} and {self.after}: expected 0 or more")
        return (*given[: self.axis], self.before + given[self.axis] + self.after, *given[self.axis + 1 :])


@dataclass(frozen=True)
class Contract:
    """Node that computes a loop nest such as a matrix product, given as an operator without epilogue.

    Maps compute the epilogue. A product of int8 gives int32, and may add int32 numbers per channel (the stage `bias`), which
    float32 would round.
    """

    operator: Operator
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the operator; ValueError unless it is a sum of products, sum or maximum of floats (or int8) without epilogue."""
        op, types = self.operator, ("float32", *HALVES)
        added = [stage.name for stage in op.epilogue]
        if op.dtype == "int8" and op.body in ("multiply_add", "max") and added in ([], ["bias"][: op.body != "max"]):
            return
        if op.epilogue or op.dtype not in types or op.body not in ("multiply_add", "sum", "max"):
            raise ValueError(f"contract of {op}: expected a sum, product or maximum of {', '.join(types)} without epilogue")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values that the node reads."""
        return self.sources

    def reading(self, names: Mapping[str, str]) -> Self:
        """Return the node with other inputs. `names` maps each old name to the new name."""
        return dataclasses.replace(self, sources=tuple(names[source] for source in self.sources))

    def shape(self, *given: Shape) -> Shape:
        """Return the shape of the operator's output; ValueError unless the sources have the shapes of its inputs."""
        wanted = tuple(tensor.shape for tensor in self.operator.inputs)
        if given != wanted:
            raise ValueError(f"{self.operator} of shapes {_several(given)}: expected {_several(wanted)}")
        return self.operator.output.shape


Node = Map | Reduce | Broadcast | Transpose | Reshape | Slice | Gather | Scatter | Concat | Pad | Contract


def _check_axis(axis: int, given: Shape) -> None:
    if not 0 <= axis < len(given):
        raise ValueError(f"axis {axis} of shape {list(given)}: expected 0 to {len(given) - 1}")


def _several(shapes: tuple[Shape, ...]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes)
