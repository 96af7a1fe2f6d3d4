"""C text of the micro-kernel, a function that computes a register tile over one L1 tile of the reduction.

An interior variant has no guards, edge variants guard their accesses.
"""

from __future__ import annotations

import functools
import operator

from gensor_gym.codegen.c.amx.steps import products
from gensor_gym.codegen.c.amx.stores import in_fours, is_signed
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro import along as c_along
from gensor_gym.codegen.c.micro import dot as c_dot
from gensor_gym.codegen.c.micro.ahead import ask_ahead, ask_results
from gensor_gym.codegen.c.micro.finish import accumulate, finish, store
from gensor_gym.codegen.c.micro.shift import store_rows
from gensor_gym.codegen.c.micro.window import window, written_out
from gensor_gym.codegen.c.operand import NOWHERE, Point, Reader, bounds, is_split, literal
from gensor_gym.codegen.c.plan import Chunk, LoopPlan
from gensor_gym.codegen.c.text import Lines
from gensor_gym.codegen.c.variants import Variant
from gensor_gym.operators.bodies import BODIES, limited

MAX_UNROLLED = 512
"""Largest number of multiply-adds in an unrolled loop body, since compile time grows with it."""
MAX_GUARDED = 128
"""Largest number of multiply-adds with guarded loads: gcc 12 took 5 s to compile 250 of them without masked instructions."""
AGAIN = '__asm__ volatile("" ::: "memory"); /* elements that several taps read are read again */'
"""C statement between the taps of a window whose elements are read again (`_reads_again`)."""


def parameters(plan: LoopPlan) -> list[str]:
    """Return the names of the micro-kernel's parameters.

    They are the start of the register tile along each axis, and begin and end of the L1 tile, unless constant.
    """
    names = [plan.axes[a] for a in plan.op.spatial if plan.moves(a)]
    for a in plan.op.reduce:
        begin, end = bounds(plan, a)
        names += [begin] if is_split(plan, a) else []
        names += [end] if not end.isdigit() else []
    return names


def flags(plan: LoopPlan) -> list[str]:
    """Return the names of the micro-kernel's flags, `first` and `last`.

    They mark the first and last block of a reduction whose partial sums are stored between blocks (`LoopPlan.is_carried`).
    """
    if not plan.is_carried:
        return []
    finishes = plan.splits == 1 and (plan.op.divisor != 1 or plan.op.epilogue)
    return ["first", "last"] if finishes else ["first"]


def micro_kernel(kind: Variant) -> str:
    """Return the C function of one variant of the micro-kernel."""
    lines, plan, edge = Lines(), kind.plan, kind.edge
    reader = Reader(plan, edge)
    arguments = ["const struct task *t", *(f"long {name}" for name in parameters(plan))]
    arguments += [f"int {name}" for name in flags(plan)]
    shape = " x ".join(f"{plan.axes[a]} {plan.tiles[0][a]}" for a in plan.op.spatial)
    where = "sticks out of the extents or reads padding" if edge else "lies inside every tensor"
    lines.add(f"/* Register tile {shape}; it {where}. */")
    # gcc 12 inlines the guarded variant of groups into the loops over tiles and then spills accumulators in both variants.
    apart = "__attribute__((noinline)) " if edge and plan.group >= 0 and not plan.groups_lanes else ""
    with lines.block(f"static {apart}void {kind.name}({', '.join(arguments)})"):
        lines.add(*reader.clamps())
        for operand in plan.reads:
            lines.add(*reader.prologue(operand))
        lines.add(*reader.prologue(plan.output, written=True))
        ask_results(lines, reader)
        if plan.op.body == "map":
            _step(lines, reader, False)
        else:
            order, unrolls = _reduce_order(plan), _unrolls(plan, MAX_UNROLLED)
            if edge and not written_out(plan, order, unrolls):
                unrolls = _unrolls(plan, MAX_GUARDED)
            # Without initial values, an accumulator is declared by its first term.
            at_once = written_out(plan, order, unrolls) == order and not plan.is_carried and plan.tiling is None
            if not at_once:
                _start(lines, reader)
            if plan.tiling is not None:
                products(lines, reader, plan.tiling)
                _rest(lines, reader)
            else:
                _reduction(lines, reader, order, unrolls)
        if plan.shift is not None:
            store_rows(lines, reader)
        else:
            finish(lines, reader)
            store(lines, reader)
    return str(lines)


def accumulator(row: int, chunk: int) -> str:
    """Return the name of the C variable that accumulates one vector of a row of the register tile.

    `chunk` is the vector's index.
    """
    return f"sum_{row}_{chunk}"


def _vector_type(chunk: Chunk) -> str:
    return f"vec{chunk.width}"


def identity(plan: LoopPlan) -> str:
    """Return the C constant of the reduction's identity (such as 0 for a sum), the initial value of accumulators."""
    return literal(plan.op.reduction.identity, plan.accumulator)


def _start(lines: Lines, reader: Reader) -> None:
    plan = reader.plan
    if in_fours(reader) and is_signed(plan):
        return
    if plan.groups_bytes:
        (c_along if plan.groups_lanes else c_dot).start(lines, reader)
    for c, chunk in enumerate(() if plan.has_starts else plan.chunks):
        start = identity(plan) if chunk.width == 1 else f"splat_{chunk.width}({identity(plan)})"
        names = [accumulator(r, c) for r in range(len(plan.rows))]
        lines.add(f"{_vector_type(chunk)} " + ", ".join(f"{name} = {start}" for name in names) + ";")
    if not plan.is_carried or plan.vector_is_reduced:
        return
    output, joined = plan.output, "+=" if plan.has_starts else "="
    with lines.block("if (!first)"):
        for r, row in enumerate(plan.rows):
            for c, chunk in enumerate(plan.chunks):
                lines.add(f"{accumulator(r, c)} {joined} {reader.value(output, row, chunk)};")


def _reduce_order(plan: LoopPlan) -> list[int]:
    return sorted(plan.op.reduce, key=lambda a: (a == plan.vector, a))


def _unrolls(plan: LoopPlan, most: int) -> dict[int, int]:
    """Choose the unroll factor of each reduction axis.

    The loop body has at most `most` multiply-adds; inner loops are unrolled first.
    """
    budget = max(1, most // (len(plan.rows) * len(plan.chunks)))
    factors = {}
    for depth, axis in enumerate(reversed(_reduce_order(plan))):
        wanted = plan.program.knob("unroll") if depth == 0 else 1
        steps = -(-plan.op.extents[axis] // plan.step(axis))
        if axis != plan.vector:
            wanted *= plan.tiles[0][axis]
        factors[axis] = max(1, min(wanted, budget, steps))
        budget = max(1, budget // factors[axis])
    return factors


def _reduction(lines: Lines, reader: Reader, order: list[int], unrolls: dict[int, int]) -> None:
    plan = reader.plan
    if not order:
        if _reads_again(reader, unrolls):
            lines.add(AGAIN)
        (_step if plan.group < 0 else c_dot.step)(lines, reader, False)
        return
    if written_out(plan, order, unrolls) == order:
        whole = order == _reduce_order(plan) and not plan.is_carried
        window(lines, reader, order, declared=not whole)
        return
    axis, inner = order[0], order[1:]
    name, (begin, end) = plan.axes[axis], bounds(plan, axis)
    if axis == plan.vector or (axis == plan.group and not inner):
        _vector_loop(lines, reader, axis, unrolls[axis])
        return
    if plan.op.extents[axis] == 1:
        lines.add(f"const long {name} = 0;")
        _reduction(lines, reader, inner, unrolls)
        return
    if unrolls[axis] > 1:
        lines.add(f"UNROLL({unrolls[axis]})")
    step = "++" if plan.step(axis) == 1 else f" += {plan.step(axis)}"
    with lines.block(f"for (long {name} = {begin}; {name} < {end}; {name}{step})"):
        if written_out(plan, inner, unrolls) == inner:
            _prefetch(lines, reader, axis, dict.fromkeys(inner, 0))
        ask_ahead(lines, reader, axis)
        _reduction(lines, reader, inner, unrolls)


def _rest(lines: Lines, reader: Reader) -> None:
    """Write in vectors what steps in tile registers leave of the reduction; nothing if its length is a multiple of theirs."""
    plan, (_, end) = reader.plan, bounds(reader.plan, reader.plan.group)
    assert plan.tiling is not None
    if plan.groups_channels or plan.op.extents[plan.group] % plan.tiling.step == 0:
        return
    name = plan.axes[plan.group]
    with lines.block(f"for (; {name} + {plan.group_size} <= {end}; {name} += {plan.group_size})"):
        c_dot.step(lines, reader, False)
    if plan.op.extents[plan.group] % plan.group_size:
        with lines.block(f"if ({name} < {end})"):
            c_dot.step(lines, reader, True)


def _reads_again(reader: Reader, unrolls: dict[int, int]) -> bool:
    """Return whether every tap of a window broadcasts all its elements, although other taps broadcast some of them, too.

    Compilers keep such an element in a register from tap to tap. They then spill accumulators if registers are few. If the loop
    over taps is not unrolled, they move elements between registers in every step.
    """
    plan, extents = reader.plan, reader.plan.op.extents
    near: list[int] = []  # loops whose steps a compiler sees together
    for a in reversed([a for a in _reduce_order(plan) if extents[a] > 1]):
        near.append(a)
        if unrolls[a] < extents[a]:
            break
    for read in plan.reads:
        # Guards at an edge and conversions of 16-bit floats cost more than the lack of registers.
        if read.lane_stride or read.dtype != "float32" or (reader.edge and read.packing is None):
            continue
        starts = {sum(map(operator.mul, read.strides, row)) for row in plan.rows}
        taps = [a for a in near if len(_reached(starts, read, a, extents[a])) < len(starts) * extents[a]]
        elements = functools.reduce(lambda found, a: _reached(found, read, a, extents[a]), taps, starts)
        held = (len(plan.rows) + 1) * len(plan.chunks) + len(elements)
        if taps and (held > plan.program.hardware.vector_registers or any(unrolls[a] < extents[a] for a in taps)):
            return True
    return False


def _reached(starts: set[int], read: Operand, axis: int, extent: int) -> set[int]:
    return {start + read.strides[axis] * i for start in starts for i in range(extent)}


def _vector_loop(lines: Lines, reader: Reader, axis: int, unroll: int) -> None:
    plan = reader.plan
    name, (begin, end), width = plan.axes[axis], bounds(plan, axis), plan.step(axis)
    step = c_along.step if plan.groups_lanes else _step if axis == plan.vector else c_dot.step
    exact = plan.op.extents[axis] % width == 0
    if plan.op.extents[axis] >= width:
        if not exact:
            lines.add(f"long {name} = {begin};")
        if unroll > 1:
            lines.add(f"UNROLL({unroll})")
        start = f"long {name} = {begin}; {name} < {end}" if exact else f"; {name} + {width} <= {end}"
        with lines.block(f"for ({start}; {name} += {width})"):
            _prefetch(lines, reader, axis)
            step(lines, reader, False)
    else:
        lines.add(f"const long {name} = {begin};")
    if not exact:
        with lines.block(f"if ({name} < {end})"):
            step(lines, reader, True)


def _prefetch(lines: Lines, reader: Reader, axis: int, point: Point = NOWHERE) -> None:
    plan, distance = reader.plan, reader.plan.program.knob("prefetch")
    moving = [read for read in plan.reads if read.lane_stride and read.strides[axis]]
    if not distance or not moving or reader.edge:
        return
    operand = max(moving, key=lambda read: read.access.tensor.size)
    ahead = distance * plan.step(axis) * operand.strides[axis]
    for row in reader.distinct(operand):
        for chunk in plan.chunks:
            lines.add(f"__builtin_prefetch({operand.name} + {reader.index(operand, row, chunk, point)} + {ahead});")


def _step(lines: Lines, reader: Reader, tail: bool) -> None:
    plan = reader.plan
    loaded: dict[tuple[object, ...], str] = {}
    for r, row in enumerate(plan.rows):
        for c, chunk in enumerate(plan.chunks):
            words = [_loaded(lines, reader, read, row, c, tail, loaded) for read in plan.reads]
            if plan.op.body == "map":
                lines.add(f"{_vector_type(chunk)} {accumulator(r, c)} = {_map(plan, words, chunk)};")
            else:
                lines.add(_combine(plan, accumulator(r, c), words, chunk, tail))


def _loaded(
    lines: Lines,
    reader: Reader,
    read: Operand,
    row: tuple[int, ...],
    c: int,
    tail: bool,
    loaded: dict[tuple[object, ...], str],
) -> str:
    """Return the name of the C variable of a loaded value, and write its load at the first use.

    `loaded` maps the values that are loaded so far to their variables; a new variable is added.
    """
    plan = reader.plan
    key = reader.key(read, row)
    scalar = read.lane_stride == 0
    identity = (read.name, key, 0 if scalar else c)
    if identity not in loaded:
        place = reader.distinct(read).index(key)
        loaded[identity] = f"{read.name}_{place}" if scalar else f"{read.name}_{place}_{c}"
        chunk = plan.chunks[c]
        kind = plan.accumulator if scalar else _vector_type(chunk)
        value = reader.value(read, row, chunk, tail)
        if not scalar and chunk.width > 1 and len(reader.distinct(read)) < len(plan.rows):
            value = f"hold_{chunk.width}({value})"
        lines.add(f"const {kind} {loaded[identity]} = {value};")
    return loaded[identity]


def _combine(plan: LoopPlan, name: str, words: list[str], chunk: Chunk, tail: bool) -> str:
    """Return the C statement `sum += a * b`, `sum += a` or `sum = max(sum, a)` for one vector.

    With `tail`, lanes past the end of the axis contribute nothing.
    """
    body = BODIES[plan.op.body]
    term = body.term.format(*words)
    if tail and _needs_mask(plan):
        left = f"{bounds(plan, plan.vector)[1]} - {plan.axes[plan.vector]} - {chunk.offset}"
        term = f"keep_{chunk.width}({term}, {left}, {identity(plan)})"
    scalar = not body.reduction.infix and all(read.lane_stride == 0 for read in plan.reads) and chunk.width > 1
    return accumulate(plan, name, f"splat_{chunk.width}({term})" if scalar else term, chunk.width)


def _needs_mask(plan: LoopPlan) -> bool:
    """Return whether lanes past the end of a reduced vector axis need a mask.

    They do if they may have other values than the reduction's identity.
    """
    identity = plan.op.reduction.identity
    plain = all(read.packing is None and read.lane_stride for read in plan.reads)
    return not plain or plan.op.pad_value not in (identity, limited(identity, "int8"))


def _map(plan: LoopPlan, words: list[str], chunk: Chunk) -> str:
    width = chunk.width
    words = [
        f"splat_{width}({word})" if read.lane_stride == 0 and width > 1 else word
        for word, read in zip(words, plan.reads, strict=True)
    ]
    if plan.op.function in ("add", "mul"):
        return f" {'+' if plan.op.function == 'add' else '*'} ".join(words)
    return words[0] if plan.op.function == "copy" else f"{plan.op.function}_{width}({words[0]})"
