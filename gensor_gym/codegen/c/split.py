"""C text of the second pass of a split reduction, which combines partial outputs in a fixed order and applies the epilogue."""

from __future__ import annotations

from dataclasses import replace

from gensor_gym.codegen.c.elements.quantized import finished, of_written
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro.finish import accumulate, epilogue_lines
from gensor_gym.codegen.c.operand import element, stored
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.text import Lines, ceil_div, linear

BLOCK = 4096
"""Largest number of output elements along the innermost axis for one task of the second pass."""


def _innermost_axis(plan: LoopPlan) -> int:
    return plan.op.spatial[-1]


def _blocks(plan: LoopPlan) -> int:
    return ceil_div(plan.op.extents[_innermost_axis(plan)], BLOCK)


def finish_call(plan: LoopPlan) -> list[str]:
    """Return C statements that run the second pass of a split reduction; empty if the reduction is not split."""
    if plan.splits == 1:
        return []
    items = _blocks(plan)
    for a in plan.op.spatial[:-1]:
        items *= plan.op.extents[a]
    return [f"team.parallel(&team, finish_row, &call, {items});"]


def finish_function(plan: LoopPlan) -> str:
    """Return the C function `finish_row`, which computes a part of one row of the output from the partial outputs."""
    lines, axis = Lines(), _innermost_axis(plan)
    name, extent = plan.axes[axis], plan.op.extents[axis]
    lines.add(f"/* Joins the {plan.splits} partial outputs of a row in order, at most {BLOCK} elements of it. */")
    with lines.block("static void finish_row(void *context, long index, int thread)"):
        lines.add("const struct call *const call = context;", "(void)thread;")
        _declare_indices(lines, plan)
        operands = [plan.output, *(o for o in plan.stages if o is not None)]
        for operand in operands:
            terms = [(operand.strides[a], plan.axes[a]) for a in plan.op.spatial[:-1] if plan.op.extents[a] > 1]
            offset = sum(s * o for s, o in zip(operand.access.strides(), operand.access.offset, strict=True))
            lines.add(f"const long {operand.name}_row = {linear(terms, offset)};")
        lines.add(f"const {plan.accumulator} *const partial = call->partial + {plan.output.name}_row;")
        lines.add(f"long {name} = begin;")
        lanes = plan.program.hardware.lanes
        if extent >= lanes > 1 and all(operand.strides[axis] in (0, 1) for operand in operands):
            with lines.block(f"for (; {name} + {lanes} <= end; {name} += {lanes})"):
                _element(lines, plan, lanes)
        with lines.block(f"for (; {name} < end; {name}++)"):
            _element(lines, plan, 1)
    return str(lines)


def _declare_indices(lines: Lines, plan: LoopPlan) -> None:
    index, axis = "index", _innermost_axis(plan)
    blocks = _blocks(plan)
    if blocks > 1:
        lines.add(f"const long begin = index % {blocks} * {BLOCK};")
        lines.add(f"const long end = least(begin + {BLOCK}, {plan.op.extents[axis]});")
        index = f"index / {blocks}"
    else:
        lines.add(f"const long begin = 0, end = {plan.op.extents[axis]};")
    outer = [a for a in plan.op.spatial[:-1] if plan.op.extents[a] > 1]
    if not outer and blocks == 1:
        lines.add("(void)index;")
    divisor = 1
    for a in reversed(outer):
        quotient = index if divisor == 1 else f"{index} / {divisor}"
        digit = quotient if a == outer[0] else f"{quotient} % {plan.op.extents[a]}"
        lines.add(f"const long {plan.axes[a]} = {digit};")
        divisor *= plan.op.extents[a]


def _element(lines: Lines, plan: LoopPlan, width: int) -> None:
    axis, size = _innermost_axis(plan), plan.op.output.room
    stride = plan.output.strides[axis]
    for chunk in range(plan.splits):
        place = linear([(stride, plan.axes[axis])], chunk * size)
        value = f"load_{width}(partial + {place})" if width > 1 else f"partial[{place}]"
        if chunk == 0:
            lines.add(f"vec{width} total = {value};" if width > 1 else f"{plan.accumulator} total = {value};")
        else:
            lines.add(accumulate(plan, "total", value, width))
    loads = [None if o is None else _operand(plan, o, width) for o in plan.stages]
    lines.add(*epilogue_lines(plan, "total", width, loads))
    place = linear([(1, f"{plan.output.name}_row"), (stride, plan.axes[axis])])
    written, target = replace(plan.output, dtype=plan.op.output.dtype), f"call->{plan.output.name}"
    value = finished(plan, "total")
    wide = f"{of_written(plan, 'store', whole=True)}_{width}({target} + {place}, {value});"
    lines.add(wide if width > 1 else stored(written, target, place, value))


def _operand(plan: LoopPlan, operand: Operand, width: int) -> str:
    axis = _innermost_axis(plan)
    place = linear([(1, f"{operand.name}_row"), (operand.strides[axis], plan.axes[axis])])
    wide = width > 1 and operand.strides[axis] == 1
    given = f"call->{operand.name}"
    return f"load{operand.ending}_{width}({given} + {place})" if wide else element(operand, given, place)
