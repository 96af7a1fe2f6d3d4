"""Generate the C source of a CPU program: entries, the parallel loop over tasks, packing and micro-kernels."""

from __future__ import annotations

import re
from pathlib import Path

from gensor_gym.codegen.c import channels
from gensor_gym.codegen.c.amx.steps import shapes
from gensor_gym.codegen.c.amx.text import helper_text as tile_helpers
from gensor_gym.codegen.c.layout.operands import C_TYPES, Operand
from gensor_gym.codegen.c.loops import register_tiles
from gensor_gym.codegen.c.micro.ahead import asks_by_turns, turns
from gensor_gym.codegen.c.micro.along import reads_back, tail_table
from gensor_gym.codegen.c.micro.dot import helper_text, start_axes, start_field
from gensor_gym.codegen.c.micro.intrinsics import intrinsics
from gensor_gym.codegen.c.micro.kernel import micro_kernel
from gensor_gym.codegen.c.micro.shift import copy_row, plane_function, planes_call, shift_constants
from gensor_gym.codegen.c.micro.vectors import prelude
from gensor_gym.codegen.c.operand import fill_array, fill_name, guard_name, has_guard_field, task_start
from gensor_gym.codegen.c.pack import COPY_LINE, pack_call, pack_function
from gensor_gym.codegen.c.plan import LoopPlan, make_plan
from gensor_gym.codegen.c.shared import (
    has_prepacked,
    shared_call,
    shared_functions,
    shared_reads,
    shared_start,
    weights_call,
    weights_function,
)  # fmt: skip
from gensor_gym.codegen.c.split import finish_call, finish_function
from gensor_gym.codegen.c.text import Lines, add, linear, round_up
from gensor_gym.codegen.c.variants import Variant, variants
from gensor_gym.codegen.c.whole_rows import WholeRows, at_end, loop_call, loop_function, task_blocks, task_lines
from gensor_gym.codegen.kernel import PACKS, WHOLE, Kernel, Launch
from gensor_gym.codegen.program import Program
from gensor_gym.operators.types import ITEM_BYTES

PREPACKED = "gg_prepacked"
"""Name of the entry of a kernel with packed weights.

The entry reads weights that the entry `PACKS` has packed into the workspace.
"""
LINE = 64
"""Size of a cache line in bytes, to which buffers in the workspace are aligned."""
PAGE = 4096
ARGUMENTS = "const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime"
ALIGNED = f"char *const aligned = (char *)(((uintptr_t)workspace + {LINE - 1}) & ~(uintptr_t){LINE - 1});"

_HEADERS = {
    "math": r"\b(expf|expm1f|tanhf|erff|erfcf|lgammaf|fmodf|logf|log1pf|sinf|cosf|atanf|rintf|INFINITY)\b",
    "stdint": r"\w+_t\b|\bINT32_M(IN|AX)\b",
    "string": r"\bmem(cpy|set)\b",
}  # fmt: skip
"""C header -> pattern of the words in a source that need it. A superfluous header adds a tenth to the compile time."""
_UNROLL = """#ifdef __clang__
#define GG_PRAGMA(text) _Pragma(#text)
#define UNROLL(n) GG_PRAGMA(clang loop unroll_count(n))
#else
#define GG_PRAGMA(text) _Pragma(#text)
#define UNROLL(n) GG_PRAGMA(GCC unroll n)
#endif
"""


def generate_c(program: Program, rows: WholeRows | None = None) -> Kernel:
    """Generate the C kernel of a program with any structurally valid schedule.

    A kernel whose weights are constant (`Operator.frozen`) and packed has two more entries: one packs the weights, the other uses
    the packed copy. `rows` describes operations on whole rows of the output, if there are any. An unsupported data type raises a
    ValueError.
    """
    plan = make_plan(program)
    prepacked = plan.op.frozen and has_prepacked(plan)
    kinds = variants(plan)
    parts = [_structs(plan, rows)]
    parts += _fill_arrays(plan, kernels := [micro_kernel(kind) for kind in kinds])
    parts += [*filter(None, [shift_constants(plan)])]
    parts += [_pack_function(plan, read) for read in plan.reads if read.packing and not read.packing.shared]
    parts += [*shared_functions(plan), *kernels]
    parts += list(rows.functions) if rows else []
    parts += [_task_function(plan, kinds, rows)]
    parts += [finish_function(plan)] if plan.splits > 1 else []
    parts += loop_function(plan, rows) if rows else []
    parts += [_entry(plan, rows), *([_entry(plan, rows, True), _packing_entry(plan, rows)] if prepacked else [])]
    body = "\n".join(parts)
    item = plan.reads[0].c_type
    copy = [COPY_LINE.replace("{item}", item)] if "copy_line(" in "".join(parts) else []
    copy += [copy_row(plan, item)] if plan.shift is not None else []
    copy += [*_group_helpers(plan), *([tile_helpers(plan.op.dtype), shapes(plan)] if plan.tiling else [])]
    head = (Path(__file__).parents[1] / "runtime" / "runtime.h").read_text()
    computed = rows.computation if rows else program.operator
    title = f"/* {computed} on {program.hardware.name}. */\n"
    helpers = prelude("".join([*copy, body]), plan.accumulator, item)
    text = "\n".join([helpers, *copy, body])
    source = "\n".join([title + headers(text) + head, text])
    entries = (Launch(PREPACKED if prepacked else WHOLE),)
    prepares = PACKS if prepacked else ""
    blocks = task_blocks(plan, rows is not None, prepacked)
    return Kernel(computed, "c", program.hardware.arch, source, entries, workspace_bytes(plan, rows), prepares, *blocks)


def _group_helpers(plan: LoopPlan) -> list[str]:
    if plan.groups_lanes:
        return [tail_table(plan)] if reads_back(plan) else []
    if plan.groups_channels:
        return [channels.helper_text(plan)]
    return [helper_text(plan)] if plan.group >= 0 else []


def headers(text: str) -> str:
    """Return the C text of the includes, intrinsics and `UNROLL` macro that the C source `text` needs."""
    needed = [f"#include <{name}.h>\n" for name, words in _HEADERS.items() if re.search(words, text)]
    return "".join(needed) + intrinsics(text) + (_UNROLL if "UNROLL(" in text else "")


def _pack_function(plan: LoopPlan, read: Operand) -> str:
    return plane_function(plan, read) if _is_shifted(plan, read) else pack_function(plan, read)


def _is_shifted(plan: LoopPlan, read: Operand) -> bool:
    return plan.shift is not None and read is plan.reads[0]


def _fill_arrays(plan: LoopPlan, parts: list[str]) -> list[str]:
    texts = "".join(parts)
    arrays = {fill_name(read): fill_array(plan, read) for read in plan.reads}
    return [array for name, array in arrays.items() if re.search(rf"\b{name}\b", texts)]


def _operands(plan: LoopPlan) -> list[Operand]:
    return [*plan.reads, *(operand for operand in plan.stages if operand is not None)]


def _structs(plan: LoopPlan, rows: WholeRows | None) -> str:
    lines = Lines()
    output = plan.output
    lines.add("/* What all tasks share. */")
    with lines.block("struct call"):
        lines.add(*(f"const {operand.c_type} *{operand.name};" for operand in _operands(plan)))
        lines.add(f"{C_TYPES[plan.op.output.dtype]} *{output.name};")
        lines.add(*([f"{output.c_type} *partial;"] if plan.splits > 1 else []))
        lines.add(*(f"{read.c_type} *shared_{read.name};" for read in shared_reads(plan)))
        lines.add(*(["char *workspace;"] if _buffer_bytes(plan) else []))
        lines.add(*([*rows.fields, "float *rows_scratch;"] if rows else []))
    text = str(lines).rstrip("\n") + ";\n\n"
    lines = Lines()
    lines.add("/* A task tile: where it starts in every tensor, and how much of it lies inside the extents. */")
    with lines.block("struct task"):
        for operand in _operands(plan) if plan.splits == 1 else plan.reads:
            lines.add(f"const {operand.c_type} *{operand.name};")
            lines.add(*([] if operand.packing else [f"long {operand.name}_origin;"]))
            lines.add(*(f"long {guard_name(operand, d)};" for d in operand.guarded if has_guard_field(plan, operand, d)))
        lines.add(f"{output.c_type} *{output.name};", f"long {output.name}_origin;")
        lines.add(*(["long line;"] if plan.shift is not None else []))
        lines.add(*(["long turn;"] if asks_by_turns(plan) else []))
        lines.add(*(f"long {start_field(plan, a)};" for a in start_axes(plan)))
        lines.add(*(f"long {plan.axes[a]}_count;" for a in _counted(plan)))
    return text + str(lines).rstrip("\n") + ";\n"


def _counted(plan: LoopPlan) -> list[int]:
    return [a for a in range(len(plan.axes)) if plan.constant_count(a) is None]


def _buffer_bytes(plan: LoopPlan) -> int:
    sizes = [_packed_bytes(read) for read in plan.reads if read.packing and not read.packing.shared]
    return round_up(sum(sizes), PAGE) + LINE if sizes else 0


def _packed_bytes(read: Operand) -> int:
    assert read.packing is not None
    return round_up(read.packing.size * ITEM_BYTES[read.access.tensor.dtype], LINE)


def _partial_bytes(plan: LoopPlan) -> int:
    size = plan.op.output.room * ITEM_BYTES[plan.op.accumulator]
    return round_up(plan.splits * size, LINE) if plan.splits > 1 else 0


def _shared_bytes(plan: LoopPlan) -> int:
    return sum(_packed_bytes(read) for read in shared_reads(plan))


def _product_bytes(plan: LoopPlan) -> int:
    return round_up(_partial_bytes(plan) + _shared_bytes(plan) + plan.threads * _buffer_bytes(plan), LINE)


def workspace_bytes(plan: LoopPlan, rows: WholeRows | None = None) -> int:
    """Return the size of a kernel's workspace in bytes.

    It includes buffers for operations on whole rows, and padding for alignment.
    """
    total = _partial_bytes(plan) + _shared_bytes(plan) + plan.threads * _buffer_bytes(plan)
    if rows:
        total = _product_bytes(plan) + rows.value_bytes + plan.threads * rows.thread_bytes
    return total + LINE if total else 0


def _task_function(plan: LoopPlan, kinds: list[Variant], rows: WholeRows | None) -> str:
    lines = Lines()
    what = " x ".join(f"{plan.axes[a]} {plan.tiles[2][a]}" for a in range(len(plan.axes)))
    lines.add(f"/* Task tile {what}{': one chunk of its reduction' if plan.splits > 1 else ''}. */")
    with lines.block("static void run_task(void *context, long index, int thread)"):
        lines.add("const struct call *const call = context;", "struct task t;")
        lines.add(*(["tile_shape(shapes_of_tiles);"] if plan.tiling else []))
        _buffers(lines, plan)
        _place_task(lines, plan)
        chunked, blocks = plan.splits > 1, plan.reduce_blocks
        if blocks == 1:
            _reduce_block(lines, plan, kinds)
        elif blocks == plan.splits:
            lines.add("const long block = chunk;")
            _reduce_block(lines, plan, kinds)
        else:
            first = f"chunk * {blocks} / {plan.splits}" if chunked else "0"
            last = f"(chunk + 1) * {blocks} / {plan.splits}" if chunked else str(blocks)
            lines.add(f"const long first_block = {first}, end_block = {last};")
            with lines.block("for (long block = first_block; block < end_block; block++)"):
                _reduce_block(lines, plan, kinds)
        lines.add(*(["tile_release();"] if plan.tiling else []))
        if rows and at_end(plan):
            task_lines(lines, plan)
    return str(lines)


def _buffers(lines: Lines, plan: LoopPlan) -> None:
    offset = 0
    for read in plan.reads:
        if read.packing is not None and not read.packing.shared:
            place = linear([(_buffer_bytes(plan), "(long)thread")], offset)
            lines.add(f"{read.c_type} *const packed_{read.name} = ({read.c_type} *)(call->workspace + {place});")
            offset += _packed_bytes(read)
    if offset == 0:
        lines.add("(void)thread;")


def _declare_starts(lines: Lines, plan: LoopPlan, axes: list[int], index: str) -> None:
    moving = [a for a in axes if plan.grid[a] > 1]
    divisor = 1
    for a in reversed(moving):
        quotient = index if divisor == 1 else f"{index} / {divisor}"
        tile, name = plan.tiles[2][a], plan.axes[a]
        digit = quotient if a == moving[0] else f"{quotient} % {plan.grid[a]}"
        lines.add(f"const long {name}_task = {digit} * {tile};")
        divisor *= plan.grid[a]
    for a in axes:
        if plan.constant_count(a) is None:
            name, rest = plan.axes[a], f"{plan.op.extents[a]} - {plan.axes[a]}_task"
            lines.add(f"t.{name}_count = least({plan.tiles[2][a]}, {rest});")


def _place_task(lines: Lines, plan: LoopPlan) -> None:
    spatial, output = list(plan.op.spatial), plan.output
    number = "index"
    if plan.splits > 1:
        lines.add(f"const long chunk = index % {plan.splits};")
        if any(plan.grid[a] > 1 for a in spatial):
            lines.add(f"const long tile = index / {plan.splits};")
        number = "tile"
    elif all(plan.grid[a] == 1 for a in spatial):
        lines.add("(void)index;")
    _declare_starts(lines, plan, spatial, number)
    lines.add(*([f"t.turn = {number} % {turns(plan)};"] if asks_by_turns(plan) else []))
    target = f"call->partial + chunk * {plan.op.output.room}" if plan.splits > 1 else f"call->{output.name}"
    lines.add(f"t.{output.name} = {target};", f"t.{output.name}_origin = {_origin(plan, output)};")
    if plan.shift is not None:
        lines.add(f"t.line = {_first_line(plan)};")
    for operand in plan.stages if plan.splits == 1 else ():
        if operand is not None:
            lines.add(f"t.{operand.name} = call->{operand.name};")
            lines.add(f"t.{operand.name}_origin = {_origin(plan, operand)};")


def _first_line(plan: LoopPlan) -> str:
    assert plan.shift is not None
    start = task_start(plan, plan.shift.axis)
    return "0" if start == "0" else f"{start} / {plan.shift.pitch}"


def _origin(plan: LoopPlan, operand: Operand) -> str:
    strides = operand.access.strides()
    constant = sum(s * o for s, o in zip(strides, operand.access.offset, strict=True))
    return linear([(operand.strides[a], task_start(plan, a)) for a in range(len(plan.axes))], constant)


def _reduce_block(lines: Lines, plan: LoopPlan, kinds: list[Variant]) -> None:
    _declare_starts(lines, plan, list(plan.op.reduce), "block")
    lines.add(*(f"t.{start_field(plan, a)} = {task_start(plan, a)};" for a in start_axes(plan)))
    for read in plan.reads:
        if read.packing is not None and read.packing.shared:
            lines.add(f"t.{read.name} = {_plus(f'call->shared_{read.name}', shared_start(plan, read))};")
            continue
        if read.packing is not None:
            starts = [linear([(c, task_start(plan, a)) for a, c in enumerate(row)]) for row in read.access.coefficients]
            shifted = _is_shifted(plan, read)
            target = f"packed_{read.name}"
            lines.add(*(planes_call(plan, read, starts[:2], "t.line", target) if shifted else [pack_call(plan, read)]))
            lines.add(f"t.{read.name} = {target};")
            continue
        lines.add(f"t.{read.name} = call->{read.name};", f"t.{read.name}_origin = {_origin(plan, read)};")
        for d in read.guarded:
            if not has_guard_field(plan, read, d):
                continue
            terms = [(c, task_start(plan, a)) for a, c in enumerate(read.access.coefficients[d])]
            lines.add(f"t.{guard_name(read, d)} = {linear(terms, read.access.offset[d])};")
    register_tiles(lines, plan, kinds)


def _plus(pointer: str, offset: str) -> str:
    return pointer if offset == "0" else f"{pointer} + {offset}"


def _entry(plan: LoopPlan, rows: WholeRows | None, prepacked: bool = False) -> str:
    lines = Lines()
    with lines.block(f"void {PREPACKED if prepacked else WHOLE}({ARGUMENTS})"):
        order = rows.order if rows else range(len(_operands(plan)))
        fields = [f".{operand.name} = inputs[{i}]" for i, operand in zip(order, _operands(plan), strict=True)]
        made = "output" if rows is None else rows.output or "0"
        fields += [f".{plan.output.name} = {made}", *(rows.given if rows else ())]
        lines.add(f"struct call call = {{{', '.join(fields)}}};")
        if workspace_bytes(plan, rows):
            lines.add(ALIGNED)
        else:
            lines.add("(void)workspace;")
        if plan.splits > 1:
            lines.add(f"call.partial = ({plan.output.c_type} *)aligned;")
        offset = _partial_bytes(plan)
        for read in shared_reads(plan):
            lines.add(f"call.shared_{read.name} = ({read.c_type} *)({add('aligned', str(offset))});")
            offset += _packed_bytes(read)
        if _buffer_bytes(plan):
            lines.add(f"call.workspace = {add('aligned', str(offset))};")
        if rows:
            _place_rows(lines, plan, rows)
        lines.add("/* The workspace holds buffers for so many threads. */", "struct gg_runtime team = *runtime;")
        lines.add(f"team.threads = (int)least(team.threads, {plan.threads});")
        lines.add(*shared_call(plan, prepacked))
        lines.add(f"team.parallel(&team, run_task, &call, {plan.tasks});")
        lines.add(*finish_call(plan))
        lines.add(*(loop_call(plan, rows) if rows else []))
    return str(lines)


def _packing_entry(plan: LoopPlan, rows: WholeRows | None) -> str:
    weights = shared_reads(plan)[-1]
    number = next(place for place, read in enumerate(plan.reads) if read is weights)
    place = _partial_bytes(plan) + _shared_bytes(plan) - _packed_bytes(weights)
    lines = Lines()
    with lines.block(f"void {PACKS}({ARGUMENTS})"):
        given = rows.order[number] if rows else number
        lines.add(f"struct call call = {{.{weights.name} = inputs[{given}]}};", "(void)output;", ALIGNED)
        lines.add(f"call.shared_{weights.name} = ({weights.c_type} *)({add('aligned', str(place))});")
        lines.add(weights_call(plan))
    return f"{weights_function(plan)}\n{lines}"


def _place_rows(lines: Lines, plan: LoopPlan, rows: WholeRows) -> None:
    place = _product_bytes(plan)
    if rows.value_bytes:
        names = " = ".join(f"call.{name}" for name in (plan.output.name, *rows.value_names))
        lines.add(f"{names} = (float *)({add('aligned', str(place))});")
    if rows.thread_bytes:
        lines.add(f"call.rows_scratch = (float *)({add('aligned', str(place + rows.value_bytes))});")
