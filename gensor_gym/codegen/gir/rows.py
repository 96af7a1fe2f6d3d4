"""C text of one step of a row nest's kernel: all passes over a few interleaved rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from gensor_gym.codegen.c.elements import columns
from gensor_gym.codegen.c.elements.halves import ENDINGS
from gensor_gym.codegen.c.micro.turn import COUNTS
from gensor_gym.codegen.c.text import Lines, identifiers, linear
from gensor_gym.codegen.gir.ahead import LINE, Ahead, fetched_ahead
from gensor_gym.codegen.gir.elements import element_of
from gensor_gym.codegen.gir.expressions import number
from gensor_gym.codegen.gir.inputs import c_type, chosen_row, ending
from gensor_gym.codegen.gir.moves import loaded, put, scaled, stored, taken
from gensor_gym.codegen.gir.online import OVERFLOW, RunningSum
from gensor_gym.codegen.gir.scattered import OWNED, joined
from gensor_gym.codegen.gir.shapes import RowShape, Step
from gensor_gym.codegen.gir.zipped import is_zipped, zipped
from gensor_gym.dataflow.expressions import Expression, divisors
from gensor_gym.dataflow.nodes import Reduction
from gensor_gym.gir.igraph import Instruction, KernelGraph, Pass, Slice
from gensor_gym.gir.nest import Access, Online, RowNest
from gensor_gym.gir.placement import Level


@dataclass
class RowPrinter:
    """Writer of the C function that computes one step of rows of a kernel."""

    nest: RowNest
    kernel: KernelGraph
    shape: RowShape
    scratch: dict[str, int]
    """Name of a row buffer -> offset of its first row in the thread's scratch memory, in elements."""
    lines: Lines = field(default_factory=Lines)
    _given: ClassVar[str] = ""
    """Declarations of further arguments of the C function."""

    def __post_init__(self) -> None:
        names = [cell.name for cell in self.nest.cells]
        self.names = dict(zip(names, identifiers(f"v_{name}" for name in names), strict=True))
        self.element = element_of(self.nest)
        self.whole = {buffer.name for buffer in self.kernel.buffers(Level.REG) if buffer.elements}
        self.splats: set[str] = set()
        self.digits: list[list[str]] = []
        self.ahead: list[Ahead] = []
        self.reductions: list[str] = []
        shape = self.shape
        self._is_zipped = shape.vector == 1 and shape.tile == 2 and is_zipped(self.nest, self.kernel, shape.rows)

    def function(self, name: str) -> str:
        """Return the text of the C function `static void name(const struct call *call, ELEMENT *scratch, long row)`."""
        item = self.element.c
        given = f"const struct call *const call, {item} *const scratch, const long row"
        owned = OWNED if self.nest.scattered else ""
        with self.lines.block(f"static void {name}({given}{self._given}{owned})"):
            self.pointers()
            self._scratch_rows()
            self.numbers(self.kernel.before)
            ahead = fetched_ahead(self.nest, self.kernel, self.shape.rows, self.shape.streaming)
            for one, fetched in zip(self.kernel.passes, ahead, strict=True):
                self.ahead = [each for each in fetched if each.part.access in self.accesses]
                self._pass(one)
        return str(self.lines)

    def _rows(self) -> range:
        return range(1 if self._is_zipped else self.shape.rows)

    # Pointers to rows

    def pointers(self) -> None:
        """Write declarations of pointers to the step's rows of every tensor in DRAM that the kernel accesses."""
        accesses = dict.fromkeys(s.access for s in self._slices() if s.access is not None)
        self.accesses = {access: f"{c_name(access.tensor)}_{place}" for place, access in enumerate(accesses)}
        written = {i.target.access for i in self.kernel.instructions()}
        extents = self.nest.row_extents
        for r in self._rows() if accesses else ():
            self.digits.append(digits := self._digits(r, extents))
            for access, name in self.accesses.items():
                const = "" if access in written else "const "
                at = self._row(access, digits)
                if access.chosen is not None:
                    ids, kind = f"{name}_id{r}", c_type(self.nest, access.chosen.ids)
                    self.lines.add(f"const {kind} {ids} = *({self._row(access.chosen.ids, digits)});")
                    if access in written:
                        self.lines.add(f"if (!({ids} >= first && {ids} < last)) return;")
                    at = chosen_row(self.nest, access, at, ids)
                self.lines.add(f"{const}{c_type(self.nest, access)} *const {name}_at{r} = {at};")

    def _row(self, access: Access, digits: list[str]) -> str:
        """Return the C pointer to a row's first element; for a table whose rows ids select, a pointer to its row 0.

        `digits` are the indices of the row along the axes of rows.
        """
        place = linear(zip(access.rows, digits, strict=True), access.offset)
        return f"call->{c_name(access.tensor)}" + (f" + {place}" if place != "0" else "")

    def _digits(self, r: int, extents: tuple[int, ...]) -> list[str]:
        """Return the C expressions of row r's index along every axis of rows.

        If there are several axes, write declarations of variables for them.
        """
        here = f"(row + {r * self.shape.across})" if r else "row"
        if len(extents) <= 1:
            return [here] * len(extents)
        found: list[str] = []
        below = 1
        for axis in reversed(range(len(extents))):
            digit = here if below == 1 else f"{here} / {below}"
            found.insert(0, f"{digit} % {extents[axis]}" if axis else digit)
            below *= extents[axis]
        for axis, text in enumerate(found):
            self.lines.add(f"const long digit{axis}_{r} = {text};")
        return [f"digit{axis}_{r}" for axis in range(len(extents))]

    def _slices(self) -> Iterable[Slice]:
        for instruction in self.kernel.instructions():
            yield instruction.target
            yield from (part for _, part in instruction.sources)

    def _scratch_rows(self) -> None:
        vectors = -(-self.nest.columns // self.shape.vector)
        for buffer in self.kernel.buffers(Level.SRAM):
            for r in self._rows():
                place = linear([], self.scratch[buffer.name] + r * buffer.elements)
                self.lines.add(f"{self.element.c} *const {c_name(buffer.name)}_at{r} = scratch + {place};")
        for name in sorted(self.whole):
            for r in self._rows():
                self.lines.add(f"vec{self.shape.vector} {c_name(name)}_in{r}[{vectors}];")
        if not self.kernel.buffers(Level.SRAM):
            self.lines.add("(void)scratch;")
        if not self.accesses:
            self.lines.add("(void)call, (void)row;")

    # Scalars of a row

    def numbers(self, instructions: tuple[Instruction, ...]) -> None:
        """Write instructions on scalars of a row (loads, computations, stores) for each row of the step."""
        item = self.element.c
        for one in instructions:
            for r in self._rows():
                if one.kind == "map":
                    names = {name: f"{self.names[name]}_{r}" for name, _ in one.sources}
                    assert isinstance(one.body, Expression)
                    self.lines.add(f"const {item} {self.names[one.cell]}_{r} = {self.element.text(one.body, names, {}, 1)};")
                elif one.target.access is not None:
                    when = f"if ({self._first(one, r)}) " if one.once else ""
                    at = self._at(one.target, r)
                    made = joined(self.nest, one.target, at, "", (1, None), f"{self.names[one.cell]}_{r}")
                    self.lines.add(when + put(self.nest, one.target, at, made))
                else:
                    part = one.sources[0][1]
                    self.lines.add(f"const {item} {self.names[one.cell]}_{r} = {taken(self.nest, part, self._at(part, r))};")

    def _at(self, part: Slice, r: int) -> str:
        name = c_name(part.buffer.name) if part.access is None else self.accesses[part.access]
        return f"{name}_at{r}"

    # Passes along the columns

    def _pass(self, one: Pass) -> None:
        if self._is_zipped:
            load, stored = one.along
            (_, part), = load.sources
            assert part.access is not None
            self.lines.add(*zipped(self.shape.rows, self._at(part, 0), part.access.column, self._at(stored.target, 0)))
            return
        self._splat_numbers(one)
        reductions = [i for i in one.along if i.kind == "reduce"]
        steps = self.shape.steps(self.nest.columns)
        sums = max((step.tile for step in steps), default=1)
        self.reductions = [one.cell for one in reductions]
        for reduction in reductions:
            self._begin(reduction, sums)
        for step in steps:
            self._loop(one, step)
        for reduction in reductions:
            self._fold(reduction, sums)
        if self.nest.parts == 1:
            self.numbers(one.after)

    def _splat_numbers(self, one: Pass) -> None:
        width = self.shape.vector
        for instruction in one.along:
            if instruction.kind != "map":
                continue
            assert isinstance(instruction.body, Expression)
            wanted = [(name, name) for name, part in instruction.sources if not part.wide]
            divided = [] if self.nest.graph.whole else divisors(instruction.body)
            inverse = [(f"{name}/", name) for name in divided if (name, name) in wanted]
            for key, name in [*wanted, *inverse]:
                if key in self.splats:
                    continue
                self.splats.add(key)
                for r in self._rows():
                    value = f"{self.names[name]}_{r}"
                    value = f"1.0f / {value}" if key != name else value
                    text = f"splat_{width}({value})" if width > 1 else value
                    self.lines.add(f"const vec{width} {self._splat(key)}{r} = {text};")

    def _splat(self, key: str) -> str:
        """Return the prefix of the C variable of a scalar that is broadcast to all lanes; the row index follows it.

        If `key` ends with a slash, the variable holds the inverse of the scalar.
        """
        return f"{self.names[key.rstrip('/')]}_{'inverse' if key.endswith('/') else 'all'}"

    def _begin(self, reduction: Instruction, sums: int) -> None:
        if isinstance(reduction.body, Online):
            self.lines.add(*(self._running(reduction, r).begun() for r in self._rows()))
            return
        identity = self.element.number(self.element.identity(_body(reduction)))
        width = self.shape.vector
        start = f"splat_{width}({identity})" if width > 1 else identity
        for r in self._rows():
            names = [f"{_sum(reduction, r, u)} = {start}" for u in range(sums)]
            self.lines.add(f"vec{width} {', '.join(names)};")

    def _fold(self, reduction: Instruction, sums: int) -> None:
        if isinstance(reduction.body, Online):
            for r in self._rows():
                top = f"{self.names[reduction.body.top]}_{r}"
                top = top if self.nest.parts == 1 else f"max_1({top}, {number(-OVERFLOW)})"
                self._leave(reduction, r, self._running(reduction, r).folded(top))
            return
        body, width = _body(reduction), self.shape.vector
        for r in self._rows():
            parts = [_sum(reduction, r, u) for u in range(sums)]
            while len(parts) > 1:
                half = len(parts) // 2
                for low, high in zip(parts[:half], parts[half:], strict=True):
                    self.lines.add(f"{low} = {self.element.joined(body, low, high, width)};")
                parts = parts[:half]
            self._leave(reduction, r, self._folded(body, parts[0]))

    def _folded(self, body: Reduction, total: str) -> str:
        """Return the C text that reduces the lanes of the vector `total`."""
        return self.element.folded(body, total, self.shape.vector) if self.shape.along > 1 else total

    def _leave(self, reduction: Instruction, r: int, folded: str) -> None:
        name, item = f"{self.names[reduction.cell]}_{r}", f"vec{self.shape.across}" if self.shape.across > 1 else self.element.c
        self.lines.add(f"const {item} {name} = {folded};")
        if self.nest.parts > 1:
            place = self.reductions.index(reduction.cell) * self.nest.rows + r
            self.lines.add(f"call->partials[row + {place}] = {name};")

    def _loop(self, one: Pass, step: Step) -> None:
        wide = step.tile * self.shape.along
        if step.count == 1 or self.whole:
            for number_of in range(step.count):
                with self.lines.block(self._when(step.start + number_of * wide)):
                    self._step(one, step, step.start + number_of * wide, "")
            return
        with self.lines.block(f"for (long c = {step.start}; c < {self._end(step.start + step.count * wide)}; c += {wide})"):
            self._step(one, step, 0, "c")

    def _when(self, start: int) -> str:
        """Return the C condition under which a step from column `start` on is needed; empty if it always is."""
        return ""

    def _end(self, end: int) -> str:
        """Return the C text of the column before which a loop ends; `end` is the end of the row's whole steps."""
        return str(end)

    def _step(self, one: Pass, step: Step, start: int, column: str) -> None:
        here = [linear([(1, column)] if column else [], start + u * self.shape.along) for u in range(step.tile)]
        for instruction in one.along:
            block = 1 if instruction.once else self._block(instruction, step)
            for r in self._rows() if not instruction.once else ():
                if isinstance(instruction.body, Online):
                    values = [self._reduced(instruction, r, u, step, -math.inf) for u in range(step.tile)]
                    self.lines.add(*self._running(instruction, r).taken(values))
                    continue
                for u in range(step.tile):
                    if block > 1 and r % block == 0:
                        self._turn(instruction, block, r, u, here[u], step)
                    self.lines.add(self._instruction(instruction, r, u, here[u], step, block))
                    if instruction.target.access is not None and u < step.tile - 1:
                        self.lines.add("in_order();")
        self._fetch(step, here)
        for once in dict.fromkeys(i.once for i in one.along if i.once):
            chosen = [i for i in one.along if i.once == once]
            for r in self._rows():
                with self.lines.block(f"if ({self._first(chosen[0], r)})"):
                    for instruction in chosen:
                        for u in range(step.tile):
                            self.lines.add(self._instruction(instruction, r, u, here[u], step))

    def _fetch(self, step: Step, here: list[str]) -> None:
        vectors = LINE // self.shape.vector
        for u in range(0, step.tile, vectors) if step.tile % vectors == 0 and step.lanes is None else ():
            for ahead in self.ahead:
                self.lines.add(*(ahead.statement(f"{self._at(ahead.part, r)} + {here[u]}") for r in self._rows()))

    def _first(self, one: Instruction, r: int) -> str:
        return " && ".join(f"{self.digits[r][axis]} == 0" for axis in one.once)

    def _block(self, one: Instruction, step: Step) -> int:
        """Return the number of rows that a transposed load reads together, a power of two; 1 for other instructions.

        In 16 bits, only whole vectors are transposed.
        """
        access, width = one.sources[0][1].access if one.kind == "move" else None, self.shape.vector
        if access is None or not access.is_turned or self.nest.graph.whole:
            return 1
        found = min(math.gcd(self.nest.row_extents[-1], self.shape.rows), width)
        if ending(self.nest, access) in ENDINGS:
            return found if found in columns.COUNTS and width in columns.WIDTHS and step.lanes is None else 1
        return found if c_type(self.nest, access) == "float" else 1

    def _turn(self, one: Instruction, block: int, r: int, u: int, here: str, step: Step) -> None:
        """Write the load of one vector of columns from `block` rows at once; the elements are transposed in registers.

        `r` is the first row, `u` the index of the vector, `here` its first column.
        """
        part, width = one.sources[0][1], self.shape.vector
        assert part.access is not None
        stride, lanes = part.access.column, step.lanes or width
        at, into = f"{self._at(part, r)} + {scaled(here, stride)}", f"{self.names[one.cell]}_{r}_{u}_turned"
        self.lines.add(f"vec{width} {into}[{block}];")
        if kind := ending(self.nest, part.access):
            self.lines.add(f"turn_{COUNTS[block]}{kind}_{width}({at}, {stride}, {into});")
        elif stride == block:
            self.lines.add(f"apart_{COUNTS[block]}_{width}({at}, {lanes}, {into});")
        else:
            self.lines.add(f"turn_{COUNTS[block]}_{width}({at}, {stride}, {lanes}, {into});")

    def _instruction(self, one: Instruction, r: int, u: int, here: str, step: Step, block: int = 1) -> str:
        """Return the C statement of an instruction on vector `u` of row `r`.

        `here` is the vector's first column, and `block` the number of rows loaded together by `_turn`.
        """
        name, width = f"{self.names[one.cell]}_{r}_{u}", self.shape.vector
        if one.kind == "map":
            assert isinstance(one.body, Expression)
            names = {n: f"{self.names[n]}_{r}_{u}" if part.wide else f"{self._splat(n)}{r}" for n, part in one.sources}
            inverses = {n: f"{self._splat(n + '/')}{r}" for n in divisors(one.body) if n + "/" in self.splats}
            return f"const vec{width} {name} = {self.element.text(one.body, names, inverses, width)};"
        if one.kind == "reduce":
            body, total = _body(one), _sum(one, r, u)
            value = self._reduced(one, r, u, step, self.element.identity(body))
            return f"{total} = {self.element.joined(body, total, value, width)};"
        if block > 1:
            return f"const vec{width} {name} = {self.names[one.cell]}_{r - r % block}_{u}_turned[{r % block}];"
        if one.target.is_held:
            return f"const vec{width} {name} = {self._loaded(one.sources[0][1], r, here, step)};"
        return self._stored(one.target, r, here, step, name)

    def _running(self, one: Instruction, r: int) -> RunningSum:
        return RunningSum(one.cell, r, self.shape.vector)

    def _reduced(self, one: Instruction, r: int, u: int, step: Step, identity: float) -> str:
        value, width = f"{self.names[one.sources[0][0]]}_{r}_{u}", self.shape.vector
        return value if step.lanes is None else f"keep_{width}({value}, {step.lanes}, {self.element.number(identity)})"

    def _loaded(self, part: Slice, r: int, here: str, step: Step) -> str:
        if part.buffer.level is Level.REG:
            return f"{c_name(part.buffer.name)}_in{r}[{int(here) // self.shape.vector}]"
        return loaded(self.nest, part, self._at(part, r), here, self.shape.vector, step.lanes)

    def _stored(self, part: Slice, r: int, here: str, step: Step, name: str) -> str:
        if part.buffer.level is Level.REG:
            return f"{c_name(part.buffer.name)}_in{r}[{int(here) // self.shape.vector}] = {name};"
        at, width = self._at(part, r), self.shape.vector
        name = joined(self.nest, part, at, here, (width, step.lanes), name)
        return stored(self.nest, part, at, here, (width, step.lanes, self.shape.streaming), name)


def c_name(name: str) -> str:
    """Return the C name of a tensor, or of a buffer between passes (whose name contains a dot), distinct from all other names."""
    return f"b_{name.replace('.', '_')}" if "." in name else f"t_{name}"


def _sum(reduction: Instruction, r: int, u: int) -> str:
    return f"sum_{reduction.cell}_{r}_{u}"


def _body(reduction: Instruction) -> Reduction:
    """Return the kind of a reduction that is not online, `sum` or `max`."""
    return reduction.body  # type: ignore[return-value]
