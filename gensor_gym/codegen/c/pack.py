"""C text that packs an operand: it copies the elements that a task tile reads into a dense buffer."""

from __future__ import annotations

from gensor_gym.codegen.c.channels import copy_filters, copy_pixels
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro.dot import panel_lines
from gensor_gym.codegen.c.operand import stored_literal
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.runs import Run, is_constant, line, loops, low_of, panel_count, parameters, plus, rows_of, runs_of
from gensor_gym.codegen.c.text import Lines, add, linear

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


def pack_function(plan: LoopPlan, operand: Operand) -> str:
    """Return the C function that packs a box of one operand.

    Its parameters `low_d` and `rows_d` are the start and the length of the box along dimension d, unless constant.
    """
    packing = operand.packing
    assert packing is not None
    lines = Lines()
    arguments = [f"const {operand.c_type} *source", f"{operand.c_type} *packed"]
    arguments += [f"long {name}" for name in parameters(plan, operand)]
    layout = " x ".join(map(str, packing.shape))
    kind = f"panels of {plan.tiles[0][plan.vector]} along dimension {packing.panel}" if packing.panel >= 0 else "rows"
    lines.add(f"/* Copies the box {layout} of {operand.name} that a task tile reads, in {kind}. */")
    with lines.block(f"static void pack_{operand.name}({', '.join(arguments)})"):
        runs = runs_of(plan, operand)
        if plan.groups_channels and packing.panel >= 0:
            copy_filters(lines, plan, operand, runs)
        elif plan.groups_channels and not plan.reads_last:
            copy_pixels(lines, plan, runs)
        elif packing.panel < 0:
            _copy_box(lines, runs, stored_literal(plan.op.pad_value, operand), plan.groups_bytes)
        elif plan.group >= 0:
            _copy_groups(lines, plan, operand, runs)
        elif packing.panel == len(packing.shape) - 1:
            _copy_panels(lines, plan, operand, runs)
        else:
            _copy_across(lines, plan, operand, runs)
    return str(lines)


def pack_call(plan: LoopPlan, operand: Operand) -> str:
    """Return the C statement that packs the operand for the current task tile."""
    values = []
    for d in range(len(operand.access.view)):
        low, rows = low_of(plan, operand, d), rows_of(plan, operand, d)
        values += [] if is_constant(low) else [low]
        values += [] if is_constant(rows) else [rows]
    return f"pack_{operand.name}({', '.join([f'call->{operand.name}', f'packed_{operand.name}', *values])});"


def _copy_box(lines: Lines, runs: list[Run], fill: str, unsigned: bool) -> None:
    """Write the copy of a box, row by row of the tensor.

    `runs` are the box's dimensions as loops. If `unsigned`, 128 is added to int8.
    """
    outer, inner = runs[:-1], runs[-1]
    start, size = line(outer, inner.size)
    target = linear([(run.pitch, f"i{n}") for n, run in enumerate(outer)])
    with lines.blocks(loops(outer)):
        source, packed = plus("source", start), plus("packed", target)
        lines.add(f"copy_line({source}, {inner.low}, {size}, {packed}, {inner.rows}, 1, {fill});")
        lines.add(*([f"make_unsigned({packed}, {inner.rows});"] if unsigned else []))


def _copy_groups(lines: Lines, plan: LoopPlan, operand: Operand, runs: list[Run]) -> None:
    """Write the copy of a box into panels in which elements are in groups.

    A group has elements of several rows along the second innermost dimension, that of the reduction. `runs` are the box's
    dimensions as loops.
    """
    width, outer, middle, inner = plan.tiles[0][plan.vector], runs[:-2], runs[-2], runs[-1]
    start, rows = line(outer, 1) if outer else ("0", "1")
    target = linear([(run.pitch, f"i{n}") for n, run in enumerate(outer)] + [(inner.pitch, "panel")])
    with lines.blocks([*loops(outer), f"for (long panel = 0; panel < {panel_count(inner, width)}; panel++)"]):
        column = add(inner.low, f"panel * {width}")
        source = plus("source", add(start, linear([(middle.stride, middle.low)]), column))
        columns = f"least({width}, {inner.size} - ({column}))" if inner.checked else str(width)
        count = middle.rows if rows == "1" else f"({rows}) * {middle.rows}"
        lines.add(*panel_lines(plan, operand, source, columns, (count, middle.stride), plus("packed", target)))


def _copy_panels(lines: Lines, plan: LoopPlan, operand: Operand, runs: list[Run]) -> None:
    """Write the copy of a box into panels if the panel dimension is the innermost.

    Each row of the tensor is cut into panels. `runs` are the box's dimensions as loops.
    """
    width, outer, inner = plan.tiles[0][plan.vector], runs[:-1], runs[-1]
    start, size = line(outer, inner.size)
    target = linear([(run.pitch, f"i{n}") for n, run in enumerate(outer)] + [(inner.pitch, "panel")])
    with lines.blocks([*loops(outer), f"for (long panel = 0; panel < {panel_count(inner, width)}; panel++)"]):
        low = add(inner.low, f"panel * {width}")
        fill = stored_literal(plan.op.pad_value, operand)
        source, packed = plus("source", start), plus("packed", target)
        lines.add(f"copy_line({source}, {low}, {size}, {packed}, {width}, 1, {fill});")


def _copy_across(lines: Lines, plan: LoopPlan, operand: Operand, runs: list[Run]) -> None:
    """Write the copy of a box into panels if the panel dimension is not the innermost.

    Rows of the tensor become columns of panels. `runs` are the box's dimensions as loops.
    """
    packing, width, lanes = operand.packing, plan.tiles[0][plan.vector], plan.program.hardware.lanes
    assert packing is not None
    panel = next(n for n, run in enumerate(runs) if run.dimension == packing.panel)
    order = [runs[panel], *(run for n, run in enumerate(runs[:-1]) if n != panel)]
    head, *others = loops(order)
    if operand.c_type != "float" or width % lanes or not 4 <= lanes <= 16:
        with lines.blocks([head, *others]):
            _column(lines, plan, operand, order, runs[-1], "i0")
        return
    start, _ = line(order, runs[-1].size)
    inner, first = runs[-1], order[0]
    tests = [f"{add(first.low, f'i0 + {lanes}')} <= {first.size}"] if first.checked else []
    tests += [f"inside({add(run.low, f'i{n}')}, {run.size})" for n, run in enumerate(order) if n > 0 and run.checked]
    if inner.checked:
        tests += [f"{inner.low} >= 0", f"{add(inner.low, inner.rows)} <= {inner.size}"]
    whole = f"copy_columns_{lanes}({plus(plus('source', start), inner.low)}, {first.stride}, "
    whole += f"{plus('packed', _column_start(order, width, 'i0'))}, {inner.rows}, {inner.pitch});"
    with lines.blocks([head.replace("i0++", f"i0 += {lanes}"), *others]):
        if not tests:
            lines.add(whole)
            return
        lines.add(f"if ({' && '.join(tests)})", f"    {whole}", "else")
        with lines.block(f"    for (long lane = i0; lane < i0 + {lanes}; lane++)"):
            _column(lines, plan, operand, order, inner, "lane")


def _column(lines: Lines, plan: LoopPlan, operand: Operand, order: list[Run], inner: Run, lane: str) -> None:
    start, size = (text.replace("i0", lane) for text in line(order, inner.size))
    fill = stored_literal(plan.op.pad_value, operand)
    source, packed = plus("source", start), plus("packed", _column_start(order, plan.tiles[0][plan.vector], lane))
    lines.add(f"copy_line({source}, {inner.low}, {size}, {packed}, {inner.rows}, {inner.pitch}, {fill});")


def _column_start(order: list[Run], width: int, lane: str) -> str:
    terms = [(run.pitch, f"i{n}") for n, run in enumerate(order) if n > 0]
    return linear([(order[0].pitch, f"({lane} / {width})"), (1, f"{lane} % {width}"), *terms])
