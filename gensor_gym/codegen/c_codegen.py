"""C for a CPU program: the parallel loop over task tiles, and everything it calls, as one self-contained source."""

from __future__ import annotations

from pathlib import Path

from gensor_gym.codegen.c_dot import helper_text
from gensor_gym.codegen.c_micro import flags, micro_kernel, parameters
from gensor_gym.codegen.c_operand import bounds, count, guard_name, is_split, tile_start
from gensor_gym.codegen.c_pack import COPY_LINE, pack_call, pack_function, task_start
from gensor_gym.codegen.c_plan import Operand, Plan, make_plan
from gensor_gym.codegen.c_split import finish_call, finish_function
from gensor_gym.codegen.c_text import Lines, add, linear, round_up
from gensor_gym.codegen.c_vectors import prelude
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.program import Program
from gensor_gym.operators.types import ITEM_BYTES

ENTRY = "gg_kernel"
LINE = 64
"""Bytes of a cache line, to which buffers in the workspace are aligned."""
PAGE = 4096

_INTRINSICS = """#ifdef __SSE__
#include <immintrin.h>
#endif
"""
_HEADERS = """#include <math.h>
#include <stdint.h>
#include <string.h>
{intrinsics}#ifdef __clang__
#define GG_PRAGMA(text) _Pragma(#text)
#define UNROLL(n) GG_PRAGMA(clang loop unroll_count(n))
#else
#define GG_PRAGMA(text) _Pragma(#text)
#define UNROLL(n) GG_PRAGMA(GCC unroll n)
#endif
"""


def generate_c(program: Program) -> Kernel:
    """The C kernel of a program, for any structurally valid schedule; ValueError for an unknown data type."""
    plan = make_plan(program)
    variants = [edge for edge in (False, True) if _exists(plan, edge)]
    parts = [_structs(plan)]
    parts += [pack_function(plan, read) for read in plan.reads if read.packing is not None]
    parts += [micro_kernel(plan, edge) for edge in variants]
    parts += [_task_function(plan, variants)]
    parts += [finish_function(plan)] if plan.splits > 1 else []
    parts += [_entry(plan)]
    body = "\n".join(parts)
    item = plan.reads[0].c_type
    copy = [COPY_LINE.replace("{item}", item)] if any(read.packing for read in plan.reads) else []
    copy += [helper_text()] if plan.group >= 0 else []
    head = Path(__file__).with_name("runtime.h").read_text()
    title = f"/* {program.operator} on {program.hardware.name}. */\n"
    helpers = prelude("".join([*copy, body]), plan.accumulator, item)
    headers = title + _HEADERS.replace("{intrinsics}", _INTRINSICS if "_mm" in helpers else "") + head
    source = "\n".join([headers, helpers, *copy, body])
    return Kernel(program.operator, "c", program.hardware.arch, source, (Launch(ENTRY),), workspace_bytes(plan))


def _exists(plan: Plan, edge: bool) -> bool:
    """Whether some register tile is of the variant."""
    if edge:
        return bool(_overhanging(plan) or _guarded(plan))
    possible = all(plan.op.extents[a] >= plan.tiles[0][a] for a in _overhanging(plan))
    return possible and all(_fits(plan, operand, d) for operand, d in _guarded(plan))


def _fits(plan: Plan, operand: Operand, dimension: int) -> bool:
    """Whether the window of a register tile can lie inside the view."""
    row = operand.access.coefficients[dimension]
    reach = 1
    for a, c in enumerate(row):
        size = plan.tiles[0][a] if a in plan.op.spatial else min(plan.tiles[1][a], plan.op.extents[a])
        reach += c * (size - 1) if a in plan.op.spatial or not is_split(plan, a) else 0
    return reach <= operand.access.view[dimension]


def _overhanging(plan: Plan) -> list[int]:
    """Spatial axes along which some register tile sticks out of the extent."""
    return [a for a in plan.op.spatial if plan.overhangs(a)]


def _guarded(plan: Plan) -> list[tuple[Operand, int]]:
    """(operand, dimension) of every index that can leave its view."""
    return [(read, d) for read in plan.reads for d in read.guarded]


def _operands(plan: Plan) -> list[Operand]:
    """All operands that are read, the body's first."""
    return [*plan.reads, *(operand for operand in plan.stages if operand is not None)]


def _structs(plan: Plan) -> str:
    """`struct call`, what all tasks share, and `struct task`, what the tiles of one task share."""
    lines = Lines()
    output = plan.output
    lines.add("/* What all tasks share. */")
    with lines.block("struct call"):
        lines.add(*(f"const {operand.c_type} *{operand.name};" for operand in _operands(plan)))
        lines.add(f"{output.c_type} *{output.name};")
        lines.add(*([f"{output.c_type} *partial;"] if plan.splits > 1 else []))
        lines.add(*(["char *workspace;"] if _buffer_bytes(plan) else []))
    text = str(lines).rstrip("\n") + ";\n\n"
    lines = Lines()
    lines.add("/* A task tile: where it starts in every tensor, and how much of it lies inside the extents. */")
    with lines.block("struct task"):
        for operand in _operands(plan) if plan.splits == 1 else plan.reads:
            lines.add(f"const {operand.c_type} *{operand.name};")
            lines.add(*([] if operand.packing else [f"long {operand.name}_origin;"]))
            lines.add(*(f"long {guard_name(operand, d)};" for d in operand.guarded))
        lines.add(f"{output.c_type} *{output.name};", f"long {output.name}_origin;")
        lines.add(*(f"long {plan.axes[a]}_count;" for a in _counted(plan)))
    return text + str(lines).rstrip("\n") + ";\n"


def _counted(plan: Plan) -> list[int]:
    """Axes whose task tiles do not all hold as many elements."""
    return [a for a in range(len(plan.axes)) if plan.constant_count(a) is None]


def _buffer_bytes(plan: Plan) -> int:
    """Bytes of one thread's packing buffers."""
    sizes = [_packed_bytes(read) for read in plan.reads if read.packing is not None]
    return round_up(sum(sizes), PAGE) + LINE if sizes else 0


def _packed_bytes(read: Operand) -> int:
    assert read.packing is not None
    return round_up(read.packing.size * ITEM_BYTES[read.access.tensor.dtype], LINE)


def _partial_bytes(plan: Plan) -> int:
    """Bytes of the partial outputs of a split reduction."""
    return round_up(plan.splits * plan.op.output.nbytes, LINE) if plan.splits > 1 else 0


def workspace_bytes(plan: Plan) -> int:
    """Bytes of workspace: partial outputs, then the packing buffers of every thread, and room to align them."""
    total = _partial_bytes(plan) + plan.threads * _buffer_bytes(plan)
    return total + LINE if total else 0


def _task_function(plan: Plan, variants: list[bool]) -> str:
    """`run_task`: one task tile, all its reduce blocks (or those of one chunk)."""
    lines = Lines()
    what = " x ".join(f"{plan.axes[a]} {plan.tiles[2][a]}" for a in range(len(plan.axes)))
    lines.add(f"/* Task tile {what}{': one chunk of its reduction' if plan.splits > 1 else ''}. */")
    with lines.block("static void run_task(void *context, long index, int thread)"):
        lines.add("const struct call *const call = context;", "struct task t;")
        _buffers(lines, plan)
        _place_task(lines, plan)
        chunked, blocks = plan.splits > 1, plan.reduce_blocks
        if blocks == 1:
            _reduce_block(lines, plan, variants)
        elif blocks == plan.splits:
            lines.add("const long block = chunk;")
            _reduce_block(lines, plan, variants)
        else:
            first = f"chunk * {blocks} / {plan.splits}" if chunked else "0"
            last = f"(chunk + 1) * {blocks} / {plan.splits}" if chunked else str(blocks)
            lines.add(f"const long first_block = {first}, end_block = {last};")
            with lines.block("for (long block = first_block; block < end_block; block++)"):
                _reduce_block(lines, plan, variants)
    return str(lines)


def _buffers(lines: Lines, plan: Plan) -> None:
    """Addresses of this thread's packing buffers."""
    offset = 0
    for read in plan.reads:
        if read.packing is not None:
            place = linear([(_buffer_bytes(plan), "(long)thread")], offset)
            lines.add(f"{read.c_type} *const packed_{read.name} = ({read.c_type} *)(call->workspace + {place});")
            offset += _packed_bytes(read)
    if offset == 0:
        lines.add("(void)thread;")


def _decode(lines: Lines, plan: Plan, axes: list[int], index: str) -> None:
    """Declare the starts of a tile along `axes` from its number, the last axis counting fastest."""
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


def _place_task(lines: Lines, plan: Plan) -> None:
    """Where the task tile starts along the spatial axes, and in the tensors that only these index."""
    spatial, output = list(plan.op.spatial), plan.output
    number = "index"
    if plan.splits > 1:
        lines.add(f"const long chunk = index % {plan.splits};")
        if any(plan.grid[a] > 1 for a in spatial):
            lines.add(f"const long tile = index / {plan.splits};")
        number = "tile"
    elif all(plan.grid[a] == 1 for a in spatial):
        lines.add("(void)index;")
    _decode(lines, plan, spatial, number)
    target = f"call->partial + chunk * {plan.op.output.size}" if plan.splits > 1 else f"call->{output.name}"
    lines.add(f"t.{output.name} = {target};", f"t.{output.name}_origin = {_origin(plan, output)};")
    for operand in plan.stages if plan.splits == 1 else ():
        if operand is not None:
            lines.add(f"t.{operand.name} = call->{operand.name};")
            lines.add(f"t.{operand.name}_origin = {_origin(plan, operand)};")


def _origin(plan: Plan, operand: Operand) -> str:
    """Flat index in the tensor at the origin of the task tile and reduce block."""
    strides = operand.access.strides()
    constant = sum(s * o for s, o in zip(strides, operand.access.offset, strict=True))
    return linear([(operand.strides[a], task_start(plan, a)) for a in range(len(plan.axes))], constant)


def _reduce_block(lines: Lines, plan: Plan, variants: list[bool]) -> None:
    """One reduce block: pack what it reads, then walk its L1 tiles."""
    _decode(lines, plan, list(plan.op.reduce), "block")
    for read in plan.reads:
        if read.packing is not None:
            lines.add(pack_call(plan, read), f"t.{read.name} = packed_{read.name};")
            continue
        lines.add(f"t.{read.name} = call->{read.name};", f"t.{read.name}_origin = {_origin(plan, read)};")
        for d in read.guarded:
            terms = [(c, task_start(plan, a)) for a, c in enumerate(read.access.coefficients[d])]
            lines.add(f"t.{guard_name(read, d)} = {linear(terms, read.access.offset[d])};")
    heads, inner = _l1_loops(plan)
    with lines.blocks(heads):
        lines.add(*inner)
        with lines.blocks(_register_loops(plan)):
            _call_tile(lines, plan, variants)


def _local_count(plan: Plan, axis: int) -> str:
    return count(plan, axis).replace("t->", "t.")


def _l1_loops(plan: Plan) -> tuple[list[str], list[str]]:
    """Loop heads over L1 tiles in the order of the knob, and the declarations inside the innermost."""
    others = [a for a in plan.op.spatial if a != plan.vector]
    vector = [a for a in plan.op.spatial if a == plan.vector]
    reduce = list(plan.op.reduce)
    outer_vector = plan.program.knob("loop_order") == 0
    order = [*vector, *reduce, *others] if outer_vector else [*others, *reduce, *vector]
    heads, inner = [], []
    for a in order:
        name, size = plan.axes[a], plan.tiles[1][a]
        if a in plan.op.reduce:
            if is_split(plan, a):
                begin, end = f"{name}_begin", _local_count(plan, a)
                heads.append(f"for (long {begin} = 0; {begin} < {end}; {begin} += {size})")
                inner.append(f"const long {name}_end = least({begin} + {size}, {end});")
            elif not bounds(plan, a)[1].isdigit():
                inner.append(f"const long {name}_end = {_local_count(plan, a)};")
        elif _has_l1_loop(plan, a):
            heads.append(f"for (long {name}_l1 = 0; {name}_l1 < {_local_count(plan, a)}; {name}_l1 += {size})")
    return heads, inner


def _has_l1_loop(plan: Plan, axis: int) -> bool:
    """Whether the task tile holds several L1 tiles of several register tiles each along a spatial axis."""
    return plan.tiles[2][axis] > plan.tiles[1][axis]


def _register_loops(plan: Plan) -> list[str]:
    """Loop heads over the register tiles of an L1 tile, the vector axis outside or inside as the knob says."""
    others = [a for a in plan.op.spatial if a != plan.vector]
    vector = [a for a in plan.op.spatial if a == plan.vector]
    order = [*vector, *others] if plan.program.knob("loop_order") == 0 else [*others, *vector]
    heads = []
    for a in order:
        if not plan.moves(a):
            continue
        name, step, end = plan.axes[a], plan.tiles[0][a], _local_count(plan, a)
        if not _has_l1_loop(plan, a):
            heads.append(f"for (long {name} = 0; {name} < {end}; {name} += {step})")
            continue
        limit = f"least({name}_l1 + {plan.tiles[1][a]}, {end})"
        heads.append(f"for (long {name} = {name}_l1; {name} < {limit}; {name} += {step})")
    return heads


def _call_tile(lines: Lines, plan: Plan, variants: list[bool]) -> None:
    """Call the variant of the micro-kernel that fits the tile."""
    values = ["&t", *parameters(plan), *_flag_values(plan)]
    plain, guarded = f"register_tile({', '.join(values)});", f"register_tile_edge({', '.join(values)});"
    if len(variants) == 1:
        lines.add(guarded if variants[0] else plain)
        return
    tests = [_whole(plan, a) for a in _overhanging(plan)]
    for operand, d in _guarded(plan):
        tests += _in_view(plan, operand, d)
    lines.add(f"if ({' && '.join(tests)})", f"    {plain}", "else", f"    {guarded}")


def _flag_values(plan: Plan) -> list[str]:
    """Whether this is the first and the last block of a carried reduction."""
    first, last = [], []
    if plan.reduce_blocks > plan.splits:
        first.append("block == first_block")
        last.append("block == end_block - 1")
    for a in plan.op.reduce:
        if is_split(plan, a):
            begin, end = bounds(plan, a)
            first.append(f"{begin} == 0")
            last.append(f"{end} == {_local_count(plan, a)}")
    values = {"first": " && ".join(first), "last": " && ".join(last)}
    return [values[name] for name in flags(plan)]


def _whole(plan: Plan, axis: int) -> str:
    """The register tile does not stick out along a spatial axis."""
    start = tile_start(plan, axis)
    return f"{add(start, str(plan.tiles[0][axis]))} <= {_local_count(plan, axis)}"


def _in_view(plan: Plan, operand: Operand, dimension: int) -> list[str]:
    """All that the register tile reads along a guarded dimension lies inside the view."""
    coefficients, access = operand.access.coefficients[dimension], operand.access
    low_span, high_span = access.span(dimension, plan.op.extents)
    origin = f"t.{guard_name(operand, dimension)}"
    spatial = [(coefficients[a], tile_start(plan, a)) for a in plan.op.spatial]
    lows = spatial + [(coefficients[a], bounds(plan, a)[0]) for a in plan.op.reduce]
    highs, reach = list(spatial), sum(coefficients[a] * (plan.tiles[0][a] - 1) for a in plan.op.spatial)
    for a in plan.op.reduce:
        end = bounds(plan, a)[1]
        reach += coefficients[a] * (int(end) - 1 if end.isdigit() else -1)
        highs += [] if end.isdigit() else [(coefficients[a], end)]
    tests = [f"{add(origin, linear(lows))} >= 0"] if low_span < 0 else []
    limit = linear(highs, reach)
    return tests + ([f"{add(origin, limit)} < {access.view[dimension]}"] if high_span >= access.view[dimension] else [])


def _entry(plan: Plan) -> str:
    """The function that is called from outside."""
    lines = Lines()
    arguments = "const void *const *inputs, void *output, void *workspace, const struct gg_runtime *runtime"
    with lines.block(f"void {ENTRY}({arguments})"):
        fields = [f".{operand.name} = inputs[{i}]" for i, operand in enumerate(_operands(plan))]
        lines.add(f"struct call call = {{{', '.join([*fields, f'.{plan.output.name} = output'])}}};")
        if workspace_bytes(plan):
            lines.add(f"char *const aligned = (char *)(((uintptr_t)workspace + {LINE - 1}) & ~(uintptr_t){LINE - 1});")
        else:
            lines.add("(void)workspace;")
        if plan.splits > 1:
            lines.add(f"call.partial = ({plan.output.c_type} *)aligned;")
        if _buffer_bytes(plan):
            lines.add(f"call.workspace = {add('aligned', str(_partial_bytes(plan)))};")
        lines.add("/* The workspace holds buffers for so many threads. */", "struct gg_runtime team = *runtime;")
        lines.add(f"team.threads = (int)least(team.threads, {plan.threads});")
        lines.add(f"team.parallel(&team, run_task, &call, {plan.tasks});")
        lines.add(*finish_call(plan))
    return str(lines)
