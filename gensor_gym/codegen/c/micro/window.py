"""C text of fully unrolled windows of poolings and convolutions, in which a register tile loads every input element once.

Adjacent outputs read the same rows of the input, and adjacent lanes the same elements. If the schedule unrolls the loops over the
window completely, window positions are sorted by the input row (`line`) that they read, so that an input row in registers serves
all output rows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro.finish import accumulate
from gensor_gym.codegen.c.operand import Address, Point, Reader, bounds, is_gathered
from gensor_gym.codegen.c.plan import Chunk, LoopPlan
from gensor_gym.codegen.c.text import Lines
from gensor_gym.operators.bodies import BODIES


@dataclass(frozen=True)
class _Use:
    """A multiply-add to the accumulator of row r and vector c, of the input element at window position `point`.

    `line` identifies the input row, `tap` is the element's offset in this row.
    """

    line: tuple[int, ...]
    tap: int
    r: int
    c: int
    point: Point


def windowed(plan: LoopPlan) -> Operand | None:
    """Return the operand over which a window slides, as in a convolution.

    The result is None without such an operand, and for a shifted matrix product.
    """
    op = plan.op
    if plan.shift is not None:
        return None
    for read in plan.reads:
        for row in read.access.coefficients:
            slides = any(row[a] and op.extents[a] > 1 for a in op.spatial)
            if read.lane_stride and slides and any(row[a] and op.extents[a] > 1 for a in op.reduce):
                return read
    return None


def written_out(plan: LoopPlan, order: list[int], unrolls: dict[int, int]) -> list[int]:
    """Return the innermost axes of `order` whose loops have constant bounds and are fully unrolled.

    The result is empty if no operand has a window.
    """
    if windowed(plan) is None or plan.vector_is_reduced:
        return []
    axes: list[int] = []
    for a in reversed(order):
        if bounds(plan, a) != ("0", str(plan.op.extents[a])) or unrolls[a] < plan.op.extents[a]:
            break
        axes.insert(0, a)
    return axes if any(plan.op.extents[a] > 1 for a in axes) else []


def window(lines: Lines, reader: Reader, axes: list[int], declared: bool) -> None:
    """Write the multiply-adds of all window positions.

    Unless `declared`, the first multiply-add to an accumulator also declares it.
    """
    plan = reader.plan
    primary = windowed(plan)
    assert primary is not None
    writer = _Writer(lines, reader, primary, _accumulators(plan) if declared else set())
    uses = sorted(_uses(reader, primary, axes), key=lambda use: (use.line, use.c, use.tap, use.r))
    for _, group in itertools.groupby(uses, key=lambda use: (use.line, use.c)):
        writer.line(list(group))
    writer.rest()


def _accumulators(plan: LoopPlan) -> set[tuple[int, int]]:
    return set(itertools.product(range(len(plan.rows)), range(len(plan.chunks))))


def _uses(reader: Reader, primary: Operand, axes: list[int]) -> list[_Use]:
    """List the multiply-adds of all window positions, except those whose input row is known to be padding without effect."""
    plan, access = reader.plan, primary.access
    points = [dict(zip(axes, at, strict=True)) for at in itertools.product(*(range(plan.op.extents[a]) for a in axes))]
    neutral = BODIES[plan.op.body].absorbs and plan.op.pad_value == plan.op.reduction.identity
    uses = []
    for (r, row), point in itertools.product(enumerate(plan.rows), points):
        if neutral and reader.condition(primary, row, point) is False:
            continue
        line, tap = [], 0
        for d, coefficients in enumerate(access.coefficients):
            steps = sum(coefficients[a] * i for a, i in point.items())
            if coefficients[plan.vector]:
                tap += steps * access.strides()[d]
                steps = 0
            line.append(steps + sum(c * i for c, i in zip(coefficients, row, strict=True)))
        # Clamped rows have other positions than their index.
        key = (*reader.start(primary, row), *line)
        uses += [_Use(key, tap, r, c, point) for c in range(len(plan.chunks))]
    return uses


class _Writer:
    """Writer of a window's multiply-adds, input row by input row, with each load at its first use."""

    def __init__(self, lines: Lines, reader: Reader, primary: Operand, declared: set[tuple[int, int]]) -> None:
        """Prepare to write the window over the operand `primary`.

        `declared` is the set of accumulators that are declared already, as (row, index of the vector).
        """
        self._lines, self._reader, self._primary, self._declared = lines, reader, primary, declared
        self._names: dict[str, str] = {}

    def line(self, group: list[_Use]) -> None:
        """Write the multiply-adds of one input row's elements to one vector of each output row."""
        plan, chunk = self._reader.plan, self._reader.plan.chunks[group[0].c]
        loaded = self._loads(group, chunk)
        taps = {tap: [use for use in group if use.tap == tap] for tap in loaded}
        takers = {tuple(use.r for use in uses) for uses in taps.values()}
        if BODIES[plan.op.body].plain and len(taps) > 1 and len(takers) == 1:
            # The same output rows take all elements of this input row: combine the elements first.
            first, *others = loaded
            part = self._named("part", _type(chunk), loaded[first], "")
            for tap in others:
                self._lines.add(accumulate(plan, part, loaded[tap], chunk.width))
            loaded, taps = {first: part}, {first: taps[first]}
        for tap, uses in taps.items():
            for use in uses:
                self._take(use, self._term(use, loaded[tap], chunk), chunk)

    def rest(self) -> None:
        """Write declarations of the accumulators without a multiply-add, initialised with the pad value."""
        chunks = self._reader.plan.chunks
        for r, c in sorted(_accumulators(self._reader.plan) - self._declared):
            self._lines.add(f"{_type(chunks[c])} sum_{r}_{c} = {self._reader.filled(chunks[c])};")

    def _take(self, use: _Use, term: str, chunk: Chunk) -> None:
        name, key = f"sum_{use.r}_{use.c}", (use.r, use.c)
        statement = accumulate(self._reader.plan, name, term, chunk.width)
        self._lines.add(statement if key in self._declared else f"{_type(chunk)} {name} = {term};")
        self._declared.add(key)

    def _term(self, use: _Use, word: str, chunk: Chunk) -> str:
        """Return the C text of a multiply-add's product, or of the element alone in a pooling.

        The method also writes the loads of the other operands.
        """
        reader, words = self._reader, list[str]()
        for read in reader.plan.reads:
            if read is self._primary:
                words.append(word)
                continue
            value = reader.value(read, reader.plan.rows[use.r], chunk, point=use.point)
            kind = reader.plan.accumulator if read.lane_stride == 0 else _type(chunk)
            words.append(self._named(read.name, kind, value))
        return BODIES[reader.plan.op.body].term.format(*words)

    def _loads(self, group: list[_Use], chunk: Chunk) -> dict[int, str]:
        """Write the loads of an input row's elements. Return the C variables by offset in the row, in order."""
        reader, read, plan = self._reader, self._primary, self._reader.plan
        firsts = {use.tap: use for use in reversed(group)}
        loaded: dict[int, str] = {}
        for tap in sorted(firsts):
            row, point = plan.rows[firsts[tap].r], firsts[tap].point
            if tap in loaded:
                continue
            if is_gathered(read, chunk) or reader.condition(read, row, point) is False:
                loaded[tap] = self._named(read.name, _type(chunk), reader.value(read, row, chunk, point=point))
                continue
            address = self._address(firsts[tap], chunk)
            if read.lane_stride == 1 or tap + 1 not in firsts:
                word = reader.load(read, chunk, address, reader.limit(read, row, chunk, point=point))
                loaded[tap] = self._named(read.name, _type(chunk), word)
                continue
            limit = reader.limit(read, row, chunk, point=point, more=1)
            words = [reader.run(read, chunk, address, limit, shift) for shift in (0, chunk.width)]
            pair = ", ".join(self._named(read.name, _type(chunk), word) for word in words)
            for step, kind in enumerate(("even", "odd")):
                loaded[tap + step] = self._named(read.name, _type(chunk), f"{kind}_{chunk.width}({pair})")
        return loaded

    def _address(self, use: _Use, chunk: Chunk) -> Address:
        """Return the address of the first lane's element as (C pointer, offset in elements).

        An input row that may be outside the view gets a separate pointer.
        """
        reader, read, row = self._reader, self._primary, self._reader.plan.rows[use.r]
        base, constant = reader.address(read, row, chunk, use.point)
        condition = reader.condition(read, row, use.point)
        if condition is True:
            return base, constant
        along = use.tap + chunk.offset * read.lane_stride
        kind = f"const {read.c_type} *const"
        pointer = reader.pointer(read, (base, constant - along), condition)
        return self._named(f"{read.name}_line", kind, pointer), along

    def _named(self, prefix: str, kind: str, value: str, const: str = "const ") -> str:
        """Return the C variable of a value, and write its declaration if needed.

        Equal constant values share one variable; a value that is not constant gets a new one.
        """
        if const and value in self._names:
            return self._names[value]
        name = f"{prefix}_{len(self._names)}"
        self._names[value if const else name] = name
        self._lines.add(f"{'' if kind.startswith('const') else const}{kind} {name} = {value};")
        return name


def _type(chunk: Chunk) -> str:
    return f"vec{chunk.width}"
