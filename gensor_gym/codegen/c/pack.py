"""Packing: copying the part of an operand that a task tile touches into a dense buffer of its own."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.codegen.c.micro.dot import panel_lines
from gensor_gym.codegen.c.operand import literal, task_start
from gensor_gym.codegen.c.plan import LoopPlan, Operand
from gensor_gym.codegen.c.text import Lines, add, ceil_div, linear, round_up

COPY_LINE = """/* packed[i * step] = line[low + i] for i < count; the fill value where low + i is not in 0..size-1. */
static inline __attribute__((always_inline)) void copy_line(const {item} *line, long low, long size, {item} *packed,
                                                            long count, long step, {item} fill) {
    const long begin = least(most(-low, 0), count), end = least(most(size - low, begin), count);
    for (long i = 0; i < begin; i++) packed[i * step] = fill;
    if (step == 1 && end > begin)
        memcpy(packed + begin, line + low + begin, (unsigned long)(end - begin) * sizeof *packed);
    else
        for (long i = begin; i < end; i++) packed[i * step] = line[low + i];
    for (long i = end; i < count; i++) packed[i * step] = fill;
}
"""


@dataclass(frozen=True)
class _Run:
    """A dimension of the box, or several that lie one behind the other in both places."""

    low: str
    rows: str
    size: int
    stride: int
    pitch: int
    checked: bool
    dimension: int


def pack_function(plan: LoopPlan, operand: Operand) -> str:
    """The C function that packs one operand: `low_d` is where the box starts along dimension d, `rows_d` its length."""
    packing = operand.packing
    assert packing is not None
    lines = Lines()
    arguments = [f"const {operand.c_type} *source", f"{operand.c_type} *packed"]
    arguments += [f"long {name}" for name in _names(plan, operand)]
    layout = " x ".join(map(str, packing.shape))
    kind = f"panels of {plan.tiles[0][plan.vector]} along dimension {packing.panel}" if packing.panel >= 0 else "rows"
    lines.add(f"/* Copies the box {layout} of {operand.name} that a task tile reads, in {kind}. */")
    with lines.block(f"static void pack_{operand.name}({', '.join(arguments)})"):
        runs = _runs(plan, operand)
        if packing.panel < 0:
            _copy_box(lines, operand, runs, literal(plan.op.pad_value, operand.c_type), plan.group >= 0)
        elif plan.group >= 0:
            _copy_groups(lines, plan, operand, runs)
        elif packing.panel == len(packing.shape) - 1:
            _copy_panels(lines, plan, operand, runs)
        else:
            _copy_across(lines, plan, operand, runs)
    return str(lines)


def pack_call(plan: LoopPlan, operand: Operand) -> str:
    """The statement that packs the operand for the task tile at hand."""
    values = []
    for d in range(len(operand.access.view)):
        low, rows = _low(plan, operand, d), _rows(plan, operand, d)
        values += [] if _is_constant(low) else [low]
        values += [] if _is_constant(rows) else [rows]
    return f"pack_{operand.name}({', '.join([f'call->{operand.name}', f'packed_{operand.name}', *values])});"


def _is_constant(text: str) -> bool:
    return text.lstrip("-").isdigit()


def _names(plan: LoopPlan, operand: Operand) -> list[str]:
    """Parameters of the pack function: what is not the same for every task tile."""
    names = []
    for d in range(len(operand.access.view)):
        names += [] if _is_constant(_low(plan, operand, d)) else [f"low_{d}"]
        names += [] if _is_constant(_rows(plan, operand, d)) else [f"rows_{d}"]
    return names


def _low(plan: LoopPlan, operand: Operand, dimension: int) -> str:
    """Index along a dimension at the origin of the task tile."""
    terms = [(c, task_start(plan, a)) for a, c in enumerate(operand.access.coefficients[dimension])]
    return linear(terms, operand.access.offset[dimension])


def _rows(plan: LoopPlan, operand: Operand, dimension: int) -> str:
    """Length of the box along a dimension, register tiles that overhang included."""
    constant, terms = 1, []
    for a, c in enumerate(operand.access.coefficients[dimension]):
        if c == 0:
            continue
        known, unit = plan.constant_count(a), 1 if a in plan.op.reduce and a != plan.vector else plan.tiles[0][a]
        if known is not None:
            constant += c * (round_up(known, unit) - 1)
            continue
        name = f"t.{plan.axes[a]}_count"
        whole = unit == 1 or plan.op.extents[a] % unit == 0
        terms.append((c, name if whole else f"(({name} + {unit - 1}) / {unit} * {unit})"))
        constant -= c
    return linear(terms, constant)


def _leaves_view(plan: LoopPlan, operand: Operand, dimension: int) -> bool:
    """Whether the box can leave the view along a dimension."""
    access, extents = operand.access, list(plan.op.extents)
    for a in range(len(extents)):
        if a in plan.op.spatial or a == plan.vector:
            extents[a] = round_up(extents[a], plan.tiles[0][a])
    low, high = access.span(dimension, tuple(extents))
    return low < 0 or high >= access.view[dimension]


def _runs(plan: LoopPlan, operand: Operand) -> list[_Run]:
    """Dimensions of the box from outside in; a fully covered one is joined to the one outside it."""
    packing, access = operand.packing, operand.access
    assert packing is not None
    strides, runs = access.strides(), list[_Run]()
    for d, size in enumerate(access.view):
        low, rows = _low(plan, operand, d), _rows(plan, operand, d)
        low = low if _is_constant(low) else f"low_{d}"
        rows = rows if _is_constant(rows) else f"rows_{d}"
        run = _Run(low, rows, size, strides[d], packing.pitch[d], _leaves_view(plan, operand, d), d)
        before = runs[-1] if runs and packing.panel not in (d - 1, d) else None
        if before and low == "0" and rows == str(size) and before.pitch == size * run.pitch:
            low, rows, size = _times(before.low, size), _times(before.rows, size), before.size * size
            runs[-1] = _Run(low, rows, size, run.stride, run.pitch, before.checked, d)
        else:
            runs.append(run)
    return runs


def _times(text: str, factor: int) -> str:
    return str(int(text) * factor) if _is_constant(text) else f"{text} * {factor}"


def _loops(runs: list[_Run]) -> list[str]:
    """Loop heads over runs, with i0, i1, ... counted inside the box."""
    return [f"for (long i{n} = 0; i{n} < {run.rows}; i{n}++)" for n, run in enumerate(runs)]


def _line(runs: list[_Run], size: int) -> tuple[str, str]:
    """(start in the source of the line at i0, i1, ..., its size: 0 where an outer index is outside the view)."""
    places = [add(run.low, f"i{n}") for n, run in enumerate(runs)]
    start = linear([(run.stride, place) for run, place in zip(runs, places, strict=True)])
    tests = [f"inside({place}, {run.size})" for run, place in zip(runs, places, strict=True) if run.checked]
    return start, f"{' && '.join(tests)} ? {size} : 0" if tests else str(size)


def _copy_box(lines: Lines, operand: Operand, runs: list[_Run], fill: str, unsigned: bool) -> None:
    """Rows of the innermost dimension, one after the other; int8 made unsigned if asked."""
    outer, inner = runs[:-1], runs[-1]
    start, size = _line(outer, inner.size)
    target = linear([(run.pitch, f"i{n}") for n, run in enumerate(outer)])
    with lines.blocks(_loops(outer)):
        source, packed = _plus("source", start), _plus("packed", target)
        lines.add(f"copy_line({source}, {inner.low}, {size}, {packed}, {inner.rows}, 1, {fill});")
        lines.add(*([f"make_unsigned({packed}, {inner.rows});"] if unsigned else []))


def _copy_groups(lines: Lines, plan: LoopPlan, operand: Operand, runs: list[_Run]) -> None:
    """Panels of int8 in groups of rows: the two inner dimensions are the reduced one and that of the panels."""
    width, outer, middle, inner = plan.tiles[0][plan.vector], runs[:-2], runs[-2], runs[-1]
    start, rows = _line(outer, 1) if outer else ("0", "1")
    target = linear([(run.pitch, f"i{n}") for n, run in enumerate(outer)] + [(inner.pitch, "panel")])
    panels = str(ceil_div(int(inner.rows), width)) if _is_constant(inner.rows) else f"{inner.rows} / {width}"
    with lines.blocks([*_loops(outer), f"for (long panel = 0; panel < {panels}; panel++)"]):
        column = add(inner.low, f"panel * {width}")
        source = _plus("source", add(start, linear([(middle.stride, middle.low)]), column))
        columns = f"least({width}, {inner.size} - ({column}))" if inner.checked else str(width)
        count = middle.rows if rows == "1" else f"({rows}) * {middle.rows}"
        lines.add(*panel_lines(plan, operand, source, columns, (count, middle.stride), _plus("packed", target)))


def _copy_panels(lines: Lines, plan: LoopPlan, operand: Operand, runs: list[_Run]) -> None:
    """The panel dimension is contiguous in the tensor: a row is cut into panels."""
    width, outer, inner = plan.tiles[0][plan.vector], runs[:-1], runs[-1]
    start, size = _line(outer, inner.size)
    target = linear([(run.pitch, f"i{n}") for n, run in enumerate(outer)] + [(inner.pitch, "panel")])
    panels = str(ceil_div(int(inner.rows), width)) if _is_constant(inner.rows) else f"{inner.rows} / {width}"
    with lines.blocks([*_loops(outer), f"for (long panel = 0; panel < {panels}; panel++)"]):
        low = add(inner.low, f"panel * {width}")
        fill = literal(plan.op.pad_value, operand.c_type)
        source, packed = _plus("source", start), _plus("packed", target)
        lines.add(f"copy_line({source}, {low}, {size}, {packed}, {width}, 1, {fill});")


def _copy_across(lines: Lines, plan: LoopPlan, operand: Operand, runs: list[_Run]) -> None:
    """The panel dimension is not the innermost: lines of the tensor become columns of the panels."""
    packing, width, lanes = operand.packing, plan.tiles[0][plan.vector], plan.program.hardware.lanes
    assert packing is not None
    panel = next(n for n, run in enumerate(runs) if run.dimension == packing.panel)
    order = [runs[panel], *(run for n, run in enumerate(runs[:-1]) if n != panel)]
    head, *others = _loops(order)
    if operand.c_type != "float" or width % lanes or not 4 <= lanes <= 16:
        with lines.blocks([head, *others]):
            _column(lines, plan, operand, order, runs[-1], "i0")
        return
    start, _ = _line(order, runs[-1].size)
    inner, first = runs[-1], order[0]
    tests = [f"{add(first.low, f'i0 + {lanes}')} <= {first.size}"] if first.checked else []
    tests += [f"inside({add(run.low, f'i{n}')}, {run.size})" for n, run in enumerate(order) if n > 0 and run.checked]
    if inner.checked:
        tests += [f"{inner.low} >= 0", f"{add(inner.low, inner.rows)} <= {inner.size}"]
    whole = f"copy_columns_{lanes}({_plus(_plus('source', start), inner.low)}, {first.stride}, "
    whole += f"{_plus('packed', _column_start(order, width, 'i0'))}, {inner.rows}, {inner.pitch});"
    with lines.blocks([head.replace("i0++", f"i0 += {lanes}"), *others]):
        if not tests:
            lines.add(whole)
            return
        lines.add(f"if ({' && '.join(tests)})", f"    {whole}", "else")
        with lines.block(f"    for (long lane = i0; lane < i0 + {lanes}; lane++)"):
            _column(lines, plan, operand, order, inner, "lane")


def _column(lines: Lines, plan: LoopPlan, operand: Operand, order: list[_Run], inner: _Run, lane: str) -> None:
    """One line of the tensor becomes column number `lane` of the panels."""
    start, size = (text.replace("i0", lane) for text in _line(order, inner.size))
    fill = literal(plan.op.pad_value, operand.c_type)
    source, packed = _plus("source", start), _plus("packed", _column_start(order, plan.tiles[0][plan.vector], lane))
    lines.add(f"copy_line({source}, {inner.low}, {size}, {packed}, {inner.rows}, {inner.pitch}, {fill});")


def _column_start(order: list[_Run], width: int, lane: str) -> str:
    """Where a column begins in the buffer."""
    terms = [(run.pitch, f"i{n}") for n, run in enumerate(order) if n > 0]
    return linear([(order[0].pitch, f"({lane} / {width})"), (1, f"{lane} % {width}"), *terms])


def _plus(pointer: str, offset: str) -> str:
    return pointer if offset == "0" else f"{pointer} + {offset}"
