"""C expressions with which the micro-kernel reads an operand, without guards in the interior variant and with guards at edges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.plan import Chunk, LoopPlan
from gensor_gym.codegen.c.text import add, linear
from gensor_gym.dataflow.nodes import HALVES
from gensor_gym.operators.inputs import to_bfloat16

Row = tuple[int, ...]
"""Index of a row of accumulators along every axis of the register tile (`LoopPlan.rows`)."""
SCALAR = Chunk(0, 1)
Term = tuple[int, str]
"""A term of a sum: (coefficient, C name)."""
Point = Mapping[int, int]
"""Indices along reduction axes whose loops are fully unrolled: axis -> index."""
Address = tuple[str, int]
"""Address of an element: (C pointer, offset in elements)."""
NOWHERE: Point = MappingProxyType({})


def literal(value: float, c_type: str) -> str:
    """Return the C constant for a number; an infinity of an integer type becomes the end of its range."""
    if c_type != "float":
        return str(int(value)) if math.isfinite(value) else "INT32_MAX" if value > 0 else "INT32_MIN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = repr(float(value))
    return f"{text}f"


def stored_literal(value: float, operand: Operand) -> str:
    """Return the C constant for a number in the operand's type in memory; a 16-bit float is written as its bits."""
    if operand.dtype == "bfloat16":
        return f"0x{int(to_bfloat16(np.array([value], np.float32))[0]):04x}"
    if operand.dtype == "float16":
        return f"0x{int(np.array([value], np.float16).view(np.uint16)[0]):04x}"
    return literal(value, operand.c_type)


def count(plan: LoopPlan, axis: int) -> str:
    """Return the C text of the number of elements of the task tile that are inside the axis."""
    known = plan.constant_count(axis)
    return f"t->{plan.axes[axis]}_count" if known is None else str(known)


def tile_start(plan: LoopPlan, axis: int) -> str:
    """Return the C text of the register tile's start along a spatial axis, relative to the task tile."""
    return plan.axes[axis] if plan.moves(axis) else "0"


def bounds(plan: LoopPlan, axis: int) -> tuple[str, str]:
    """Return (begin, end) of the L1 tile along a reduction axis, as C texts relative to the reduction block.

    The texts are constants if possible.
    """
    name, known = plan.axes[axis], plan.constant_count(axis)
    begin = f"{name}_begin" if is_split(plan, axis) else "0"
    return begin, f"{name}_end" if begin != "0" or known is None else str(known)


def is_split(plan: LoopPlan, axis: int) -> bool:
    """Return whether a block of the reduction contains several L1 tiles along the axis."""
    return plan.tiles[1][axis] < min(plan.tiles[2][axis], plan.op.extents[axis])


def task_start(plan: LoopPlan, axis: int) -> str:
    """Return the C text of the start of the task tile or, along a reduction axis, of the reduction block."""
    return f"{plan.axes[axis]}_task" if plan.grid[axis] > 1 else "0"


def is_fixed(plan: LoopPlan, axis: int) -> bool:
    """Return whether all register tiles start at the same index along an axis, so that guards along it are constants."""
    return plan.grid[axis] == 1 and (axis in plan.op.reduce or not plan.moves(axis))


def is_fixed_dimension(plan: LoopPlan, operand: Operand, dimension: int) -> bool:
    """Return whether all register tiles start at the same index along a dimension of an operand."""
    return all(is_fixed(plan, a) for a, c in enumerate(operand.access.coefficients[dimension]) if c)


def guard_name(operand: Operand, dimension: int) -> str:
    """Return the name of the field of `struct task` with the index along a guarded dimension at the task tile's origin.

    The index along a guarded dimension can be outside the view.
    """
    return f"{operand.name}_at_{dimension}"


def has_guard_field(plan: LoopPlan, operand: Operand, dimension: int) -> bool:
    """Return whether tasks start at different indices along a guarded dimension, so that `struct task` needs a field for it."""
    row = operand.access.coefficients[dimension]
    return any(c and task_start(plan, a) != "0" for a, c in enumerate(row))


def fill_name(operand: Operand) -> str:
    """Return the name of the C array of pad values that is read instead of a row outside the view."""
    return f"{operand.name}_fill"


def fill_array(plan: LoopPlan, operand: Operand) -> str:
    """Return the C definition of the array of pad values, which is as long as a register tile's read of a row."""
    vector, stride = plan.vector, operand.lane_stride if operand.lane_stride < 3 else 0
    size = 1 + stride * (sum(chunk.width for chunk in plan.chunks) - 1)
    for d, row in enumerate(operand.access.coefficients):
        if stride and row[vector]:
            steps = sum(row[a] * (plan.op.extents[a] - 1) for a in plan.op.reduce)
            size += steps * operand.access.strides()[d]
    fill = stored_literal(plan.op.pad_value, operand)
    values = "0" if plan.op.pad_value == 0 else f"[0 ... {size - 1}] = {fill}"
    return f"static const {operand.c_type} {fill_name(operand)}[{size}] = {{{values}}};\n"


@dataclass(frozen=True)
class Limit:
    """Limit of reads along the lanes of a vector: an element of memory is readable if its index is in 0..size-1.

    The index of the first lane is the sum of `terms` and `constant`, in elements.
    """

    terms: tuple[Term, ...]
    constant: int
    size: str

    def known(self, first: int, last: int) -> bool | None:
        """Return whether elements `first` to `last` after the first lane's are readable.

        True means all of them, False none; None if only some are, or if it is not known before run time.
        """
        if self.terms or not self.size.isdigit():
            return None
        low, high, size = self.constant + first, self.constant + last, int(self.size)
        return True if low >= 0 and high < size else False if high < 0 or low >= size else None

    def text(self, shift: int) -> str:
        """Return the C text of a masked helper's arguments index and size, for reads that begin `shift` elements later."""
        return f"{linear(self.terms, self.constant + shift)}, {self.size}"


@dataclass(frozen=True)
class Reader:
    """Writer of an operand's loads, as C text, in one variant of the micro-kernel.

    The guarded variant (`edge`) accesses nothing outside a tensor: rows past the end repeat the last valid row, rows outside the
    view are read from an array of pad values, and lanes outside are masked. If all register tiles start at the same index along
    an axis, both variants have constant guards along this axis.
    """

    plan: LoopPlan
    edge: bool

    def prologue(self, operand: Operand, written: bool = False) -> list[str]:
        """Return C declarations of the operand's pointer and row offsets, for the beginning of the micro-kernel."""
        const = "" if written else "const "
        start = self._tile_origin(operand)
        if not self._by_rows(operand):
            origin = f"t->{operand.name}" + ("" if start == "0" else f" + ({start})")
            return [f"{const}{operand.c_type} *const {operand.name} = {origin};"]
        lines = [f"{const}{operand.c_type} *const {operand.name} = t->{operand.name};"]
        for row in self._starts(operand):
            terms = [(operand.strides[a], self._position(a, row[a])[0]) for a in self.plan.op.spatial]
            index = add(f"t->{operand.name}_origin", linear(terms))
            lines.append(f"const long {self._row_name(operand, row)} = {index};")
        return lines

    def clamps(self) -> list[str]:
        """Return C declarations of the positions of an edge tile's rows, clamped to the last valid row."""
        plan = self.plan
        return [
            f"const long {plan.axes[a]}_{i} = least({linear([(1, tile_start(plan, a))], i)}, {count(plan, a)} - 1);"
            for a in plan.op.spatial
            if self._clamped(a)
            for i in range(plan.tiles[0][a])
        ]

    def sticks_out(self, axis: int) -> bool:
        """Return whether a register tile of this variant may extend past the end of a spatial axis."""
        return self.plan.overhangs(axis) and (self.edge or is_fixed(self.plan, axis))

    def distinct(self, operand: Operand) -> list[Row]:
        """Return the rows of the register tile that read the operand at distinct addresses."""
        return list(dict.fromkeys(self.key(operand, row) for row in self.plan.rows))

    def key(self, operand: Operand, row: Row) -> Row:
        """Return the row with index 0 along axes that do not index the operand. Rows with equal results read equal addresses."""
        return tuple(i if operand.strides[a] else 0 for a, i in enumerate(row))

    def value(self, operand: Operand, row: Row, chunk: Chunk, tail: bool = False, point: Point = NOWHERE) -> str:
        """Return the C text of the operand's elements for one row and one vector of the register tile.

        `point` has the indices along reduction axes that are fully unrolled. `tail` means that lanes of a reduced vector axis may
        be past its end.
        """
        address = self.address(operand, row, chunk, point)
        condition = self.condition(operand, row, point)
        if condition is False:
            return self.filled(SCALAR if operand.lane_stride == 0 else chunk)
        limit = self.limit(operand, row, chunk, tail, point) if operand.lane_stride else None
        if condition is True and limit is None and (chunk.width == 1 or operand.lane_stride == 0):
            return element(operand, operand.name, self.index(operand, row, chunk, point))
        if operand.lane_stride == 0:
            return element(operand, self.pointer(operand, address, condition))
        if is_gathered(operand, chunk):
            return self._gather(operand, chunk, linear([(1, address[0])], address[1]), limit, condition)
        return self.load(operand, chunk, (self.pointer(operand, address, condition), 0), limit)

    def pointer(self, operand: Operand, address: Address, condition: str | bool) -> str:
        """Return the C text of an address, or of the array of pad values if `condition` is false at run time."""
        place = linear([(1, address[0])], address[1])
        return place if condition is True else f"({condition} ? {place} : {fill_name(operand)})"

    def load(self, operand: Operand, chunk: Chunk, address: Address, limit: Limit | None) -> str:
        """Return the C text that loads one vector from `address` on, with lanes one or two elements apart."""
        if operand.lane_stride == 1:
            return self.run(operand, chunk, address, limit, 0)
        parts = [self.run(operand, chunk, address, limit, shift) for shift in (0, chunk.width - 1)]
        return f"even_joined_{chunk.width}({', '.join(parts)})"

    def run(self, operand: Operand, chunk: Chunk, address: Address, limit: Limit | None, shift: int) -> str:
        """Return the C text that loads one vector of contiguous lanes, `shift` elements after `address`, masked by `limit`."""
        inside = True if limit is None else limit.known(shift, shift + chunk.width - 1)
        if inside is False:
            return self.filled(chunk)
        place = linear([(1, address[0])], address[1] + shift)
        if inside:
            return element(operand, f"({place})") if chunk.width == 1 else f"load{operand.ending}_{chunk.width}({place})"
        assert limit is not None
        fill = stored_literal(self.plan.op.pad_value, operand)
        return f"load_masked{operand.ending}_{chunk.width}({place}, {limit.text(shift)}, {fill})"

    def index(self, operand: Operand, row: Row, chunk: Chunk, point: Point = NOWHERE) -> str:
        """Return the C text of the first lane's index, relative to the pointer that `prologue` declares."""
        return linear(*self._index(operand, row, chunk, point))

    def address(self, operand: Operand, row: Row, chunk: Chunk, point: Point = NOWHERE) -> Address:
        """Return the address of the first lane's element as (C pointer, offset in elements)."""
        terms, constant = self._index(operand, row, chunk, point)
        return linear([(1, operand.name), *terms]), constant

    def _index(self, operand: Operand, row: Row, chunk: Chunk, point: Point) -> tuple[list[Term], int]:
        plan = self.plan
        inner = [(operand.strides[a], plan.axes[a]) for a in plan.op.reduce if a not in point]
        inner += [(1, f"{operand.name}_{plan.axes[a]}_shift[{plan.axes[a]}]") for a in operand.tables]
        constant = chunk.offset * operand.lane_stride + sum(operand.strides[a] * i for a, i in point.items())
        if not self._by_rows(operand):
            return inner, constant + sum(operand.strides[a] * i for a, i in enumerate(row))
        constant += sum(operand.strides[a] * i for a, i in enumerate(row) if not self._clamped(a))
        return [(1, self._row_name(operand, self.start(operand, row))), *inner], constant

    def condition(self, operand: Operand, row: Row, point: Point = NOWHERE) -> str | bool:
        """Return the C condition that the row is inside the view along the guarded dimensions that lanes do not index.

        The result is a bool if the condition is constant.
        """
        tests = []
        for d in self._checked(operand):
            if operand.access.coefficients[d][self.plan.vector]:
                continue
            terms, constant = self.place(operand, d, row, point)
            size = operand.access.view[d]
            if terms:
                tests.append(f"inside({linear(terms, constant)}, {size})")
            elif not 0 <= constant < size:
                return False
        return " && ".join(tests) or True

    def place(self, operand: Operand, dimension: int, row: Row, point: Point) -> tuple[tuple[Term, ...], int]:
        """Return the index along a dimension of the view, for the first lane of the register tile, as (terms, constant)."""
        plan, coefficients = self.plan, operand.access.coefficients[dimension]
        field = has_guard_field(plan, operand, dimension)
        terms: list[Term] = [(1, f"t->{guard_name(operand, dimension)}")] if field else []
        constant = 0 if field else operand.access.offset[dimension]
        for a in plan.op.spatial:
            name, step = self._position(a, row[a])
            terms.append((coefficients[a], name))
            constant += coefficients[a] * step
        terms += [(coefficients[a], plan.axes[a]) for a in plan.op.reduce if a not in point]
        constant += sum(coefficients[a] * i for a, i in point.items())
        return tuple((c, name) for c, name in terms if c and name != "0"), constant

    def limit(
        self, operand: Operand, row: Row, chunk: Chunk, tail: bool = False, point: Point = NOWHERE, more: int = 0
    ) -> Limit | None:
        """Return the limit of reads along a vector's lanes, None without a limit; `more` elements past the last are also read."""
        if operand.packing is not None:
            return None
        plan, vector, found = self.plan, self.plan.vector, list[Limit]()
        for d in self._checked(operand):
            if not operand.access.coefficients[d][vector]:
                continue
            unit, (terms, constant) = operand.access.strides()[d], self.place(operand, d, row, point)
            constant += operand.access.coefficients[d][vector] * chunk.offset
            size = unit * (operand.access.view[d] - 1) + 1
            found.append(Limit(tuple((unit * c, name) for c, name in terms), unit * constant, str(size)))
        if tail or not (found or plan.vector_is_reduced):
            found += self._end(operand, chunk, tail, more)
        if len(found) < 2:
            return found[0] if found else None
        first, second = found
        apart = [*first.terms, *((-c, name) for c, name in second.terms)]
        rest = add(second.size, linear(apart, first.constant - second.constant))
        return Limit(first.terms, first.constant, f"least({first.size}, {rest})")

    def end(self, chunk: Chunk) -> Limit | None:
        """Return the limit that the end of a spatial vector axis sets to an output's lanes; None if all lanes are inside."""
        found = self._end(self.plan.output, chunk, False, 0)
        return found[0] if found else None

    def _end(self, operand: Operand, chunk: Chunk, tail: bool, more: int) -> list[Limit]:
        """Return the limit that the end of the vector axis sets to an operand's reads, in a list; empty without a limit."""
        plan, stride = self.plan, operand.lane_stride
        if tail:
            start, end = plan.axes[plan.vector], bounds(plan, plan.vector)[1]
        elif not plan.vector_is_reduced and self.sticks_out(plan.vector):
            start, end = tile_start(plan, plan.vector), count(plan, plan.vector)
        else:
            return []
        last = 1 - stride + more
        size = str(stride * int(end) + last) if end.isdigit() else linear([(stride, end)], last)
        return [Limit(((stride, start),) if start != "0" else (), stride * chunk.offset, size)]

    def _gather(self, operand: Operand, chunk: Chunk, pointer: str, limit: Limit | None, condition: str | bool) -> str:
        stride, fill = operand.lane_stride, stored_literal(self.plan.op.pad_value, operand)
        reach = stride * (chunk.width - 1)
        inside = True if limit is None else limit.known(0, reach)
        if inside is False:
            return self.filled(chunk)
        if inside and condition is True:
            alone = chunk.width == 1
            return element(operand, f"({pointer})") if alone else f"gather{operand.ending}_{chunk.width}({pointer}, {stride})"
        index, size = ("0", str(reach + 1)) if limit is None else limit.text(0).split(", ", 1)
        size = size if condition is True else f"{condition} ? {size} : 0"
        return f"gather_masked{operand.ending}_{chunk.width}({pointer}, {stride}, {index}, {size}, {fill})"

    def filled(self, chunk: Chunk) -> str:
        """Return the C text of a vector in which all lanes are the pad value."""
        fill = literal(self.plan.op.pad_value, self.plan.accumulator)
        return fill if chunk.width == 1 else f"splat_{chunk.width}({fill})"

    def _checked(self, operand: Operand) -> list[int]:
        return [d for d in operand.guarded if self.edge or is_fixed_dimension(self.plan, operand, d)]

    def _clamped(self, axis: int) -> bool:
        plan = self.plan
        return self.edge and axis in plan.op.spatial and axis != plan.vector and plan.overhangs(axis)

    def _position(self, axis: int, step: int) -> tuple[str, int]:
        """Return the position of element `step` of the tile along a spatial axis, as (C text, constant), clamped if necessary."""
        if self._clamped(axis):
            return f"{self.plan.axes[axis]}_{step}", 0
        return tile_start(self.plan, axis), step

    def _by_rows(self, operand: Operand) -> bool:
        return self.edge and operand.packing is None

    def start(self, operand: Operand, row: Row) -> Row:
        """Return the row from whose declared offset (`prologue`) the elements of `row` are a constant distance away.

        It is `row` with index 0 along each axis that is not clamped to the extent, or that does not index the operand.
        """
        return tuple(i if operand.strides[a] and self._clamped(a) else 0 for a, i in enumerate(row))

    def _starts(self, operand: Operand) -> list[Row]:
        return list(dict.fromkeys(self.start(operand, row) for row in self.plan.rows))

    def _row_name(self, operand: Operand, start: Row) -> str:
        return f"{operand.name}_row_{self._starts(operand).index(start)}"

    def _tile_origin(self, operand: Operand) -> str:
        terms = [(operand.strides[a], tile_start(self.plan, a)) for a in self.plan.op.spatial]
        origin = "0" if operand.packing is not None else f"t->{operand.name}_origin"
        return add(origin, linear(terms))


def element(operand: Operand, pointer: str, index: str = "") -> str:
    """Return the C text of one element at a pointer, or at an index from there, converted to the accumulators' type."""
    if operand.dtype in HALVES:
        return f"load{operand.ending}_1({add(pointer, index) if index else pointer})"
    return f"{pointer}[{index}]" if index else f"*{pointer}"


def stored(operand: Operand, pointer: str, index: str, value: str) -> str:
    """Return the C statement that stores one value at an index of the operand."""
    if operand.dtype in HALVES:
        return f"store{operand.ending}_1({add(pointer, index)}, {value});"
    return f"{pointer}[{index}] = {value};"


def is_gathered(operand: Operand, chunk: Chunk) -> bool:
    """Return whether lanes are loaded one by one. Lanes two elements apart are instead selected from two vector loads."""
    pairs = operand.lane_stride == 2 and chunk.width >= 4 and operand.dtype in ("float32", "int8", *HALVES)
    return operand.lane_stride != 1 and not pairs
