"""C expressions for reading one operand in a register tile, in the interior variant and in the guarded one."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.codegen.c_plan import Chunk, Operand, Plan
from gensor_gym.codegen.c_text import add, linear

Row = tuple[int, ...]


def literal(value: float, c_type: str) -> str:
    """A number as a C constant of a type."""
    if c_type != "float":
        return "INT32_MIN" if value == float("-inf") else str(int(value))
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = repr(float(value))
    return f"{text}f"


def count(plan: Plan, axis: int) -> str:
    """Elements of the task tile inside the extent along an axis."""
    known = plan.constant_count(axis)
    return f"t->{plan.axes[axis]}_count" if known is None else str(known)


def tile_start(plan: Plan, axis: int) -> str:
    """Where the register tile starts along a spatial axis, counted from the task tile."""
    return plan.axes[axis] if plan.moves(axis) else "0"


def bounds(plan: Plan, axis: int) -> tuple[str, str]:
    """Begin and end of the L1 tile along a reduce axis, counted from the reduce block: constants where they can be."""
    name, known = plan.axes[axis], plan.constant_count(axis)
    begin = f"{name}_begin" if is_split(plan, axis) else "0"
    return begin, f"{name}_end" if begin != "0" or known is None else str(known)


def is_split(plan: Plan, axis: int) -> bool:
    """Whether a reduce block holds several L1 tiles along the axis."""
    return plan.tiles[1][axis] < min(plan.tiles[2][axis], plan.op.extents[axis])


def guard_name(operand: Operand, dimension: int) -> str:
    """Field that holds the index along a guarded dimension at the origin of the task tile."""
    return f"{operand.name}_at_{dimension}"


@dataclass(frozen=True)
class Reader:
    """Writes the loads of one variant of the micro-kernel.

    In the guarded variant (`edge`), rows that stick out of the tensor repeat the last row inside, and lanes or elements
    outside give the pad value; nothing outside a tensor is touched.
    """

    plan: Plan
    edge: bool

    def prologue(self, operand: Operand, written: bool = False) -> list[str]:
        """Declarations that the loads of the operand need, before the loops over the reduction."""
        const = "" if written else "const "
        start = self._tile_origin(operand)
        if not self._by_rows(operand):
            origin = f"t->{operand.name}" + ("" if start == "0" else f" + ({start})")
            return [f"{const}{operand.c_type} *const {operand.name} = {origin};"]
        lines = [f"{const}{operand.c_type} *const {operand.name} = t->{operand.name};"]
        for row in self.distinct(operand):
            terms = [(operand.strides[a], self.position(a, row[a])) for a in self.plan.op.spatial]
            index = add(f"t->{operand.name}_origin", linear(terms))
            lines.append(f"const long {self._row_name(operand, row)} = {index};")
        return lines

    def clamps(self) -> list[str]:
        """Positions of the rows of an overhanging tile, held inside the tensor."""
        plan = self.plan
        if not self.edge:
            return []
        return [
            f"const long {self.position(a, i)} = least({linear([(1, tile_start(plan, a))], i)}, {count(plan, a)} - 1);"
            for a in plan.op.spatial
            if a != plan.vector and plan.overhangs(a)
            for i in range(plan.tiles[0][a])
        ]

    def position(self, axis: int, step: int) -> str:
        """Position of element `step` of the tile along a spatial axis, clamped where the tile can overhang."""
        plan = self.plan
        if self.edge and axis != plan.vector and plan.overhangs(axis):
            return f"{plan.axes[axis]}_{step}"
        return linear([(1, tile_start(plan, axis))], step)

    def distinct(self, operand: Operand) -> list[Row]:
        """Rows of the register tile for which the operand is read at different places."""
        return list(dict.fromkeys(self.key(operand, row) for row in self.plan.rows))

    def key(self, operand: Operand, row: Row) -> Row:
        """The row with the axes that the operand does not depend on at 0."""
        return tuple(i if operand.strides[a] else 0 for a, i in enumerate(row))

    def value(self, operand: Operand, row: Row, chunk: Chunk, tail: bool = False) -> str:
        """The operand's elements for one row and chunk; `tail`: lanes of a reduced vector axis may be past its end."""
        index = self.index(operand, row, chunk)
        if operand.lane_stride == 0:
            return self._scalar(operand, row, index)
        masks = self._lane_range(operand, row, chunk, tail)
        if masks is None and chunk.width == 1:
            return f"{operand.name}[{index}]"
        helper, stride = _access(operand, chunk)
        small = "_narrow" if operand.c_type == "int8_t" else ""
        if masks is None:
            return f"{helper}{small}_{chunk.width}({operand.name} + {index}{stride})"
        fill = literal(self.plan.op.pad_value, operand.c_type)
        name = f"{helper}_masked{small}_{chunk.width}"
        return f"{name}({operand.name}, {index}{stride}, {masks[0]}, {masks[1]}, {fill})"

    def index(self, operand: Operand, row: Row, chunk: Chunk) -> str:
        """Index of the first lane, from the pointer that `prologue` declares."""
        plan = self.plan
        inner = [(operand.strides[a], plan.axes[a]) for a in plan.op.reduce]
        inner += [(1, f"{operand.name}_{plan.axes[a]}_shift[{plan.axes[a]}]") for a in operand.tables]
        lane = chunk.offset * operand.lane_stride
        if self._by_rows(operand):
            return linear([(1, self._row_name(operand, self.key(operand, row))), *inner], lane)
        return linear(inner, lane + sum(operand.strides[a] * i for a, i in enumerate(row)))

    def overhang_lanes(self, chunk: Chunk) -> str | None:
        """Index of the last lane inside the extent of a spatial vector axis that the tile overhangs."""
        plan = self.plan
        if not self.edge or plan.vector_is_reduced or not plan.overhangs(plan.vector):
            return None
        start = tile_start(plan, plan.vector)
        return count(plan, plan.vector) + ("" if start == "0" else f" - {start}") + f" - {chunk.offset + 1}"

    def _by_rows(self, operand: Operand) -> bool:
        return self.edge and operand.packing is None

    def _row_name(self, operand: Operand, row: Row) -> str:
        return f"{operand.name}_row_{self.distinct(operand).index(row)}"

    def _tile_origin(self, operand: Operand) -> str:
        terms = [(operand.strides[a], tile_start(self.plan, a)) for a in self.plan.op.spatial]
        origin = "0" if operand.packing is not None else f"t->{operand.name}_origin"
        return add(origin, linear(terms))

    def _scalar(self, operand: Operand, row: Row, index: str) -> str:
        element = f"{operand.name}[{index}]"
        condition = self._condition(operand, row) if self.edge else ""
        fill = literal(self.plan.op.pad_value, operand.c_type)
        return f"({condition} ? {element} : {fill})" if condition else element

    def _place(self, operand: Operand, dimension: int, row: Row) -> str:
        """Index along a dimension of the view at the first lane of the register tile."""
        plan = self.plan
        coefficients = operand.access.coefficients[dimension]
        terms = [(coefficients[a], self.position(a, row[a])) for a in plan.op.spatial]
        terms += [(coefficients[a], plan.axes[a]) for a in plan.op.reduce]
        return add(f"t->{guard_name(operand, dimension)}", linear(terms))

    def _condition(self, operand: Operand, row: Row) -> str:
        """Whether the index is inside the view along the guarded dimensions that do not move with the lanes."""
        still = [d for d in operand.guarded if operand.access.coefficients[d][self.plan.vector] == 0]
        tests = [f"inside({self._place(operand, d, row)}, {operand.access.view[d]})" for d in still]
        return " && ".join(tests)

    def _lane_range(self, operand: Operand, row: Row, chunk: Chunk, tail: bool) -> tuple[str, str] | None:
        """First and last lane that may be read, or None if all may."""
        if operand.packing is not None:
            return None
        firsts, lasts = [], []
        vector = self.plan.vector
        for d in operand.guarded if self.edge else ():
            step = operand.access.coefficients[d][vector]
            if step:
                place = add(self._place(operand, d, row), str(step * chunk.offset))
                firsts.append(f"first_lane({place}, {step})")
                lasts.append(f"last_lane({place}, {step}, {operand.access.view[d]})")
        overhang = self.overhang_lanes(chunk)
        if overhang is not None:
            lasts.append(overhang)
        if tail:
            lasts.append(f"{bounds(self.plan, vector)[1]} - {self.plan.axes[vector]} - {chunk.offset + 1}")
        condition = self._condition(operand, row) if self.edge else ""
        if not firsts and not lasts and not condition:
            return None
        first = _nest("most", firsts) or "0"
        last = _nest("least", lasts) or str(chunk.width - 1)
        return first, f"{condition} ? {last} : -1" if condition else last


def _access(operand: Operand, chunk: Chunk) -> tuple[str, str]:
    """Helper that loads a vector, and the stride it is told, if any."""
    if operand.lane_stride == 1:
        return "load", ""
    if operand.lane_stride == 2 and chunk.width >= 4 and operand.c_type == "float":
        return "even", ""
    return "gather", f", {operand.lane_stride}"


def _nest(function: str, words: list[str]) -> str:
    """least(a, least(b, c))."""
    if len(words) < 2:
        return words[0] if words else ""
    return f"{function}({words[0]}, {_nest(function, words[1:])})"
