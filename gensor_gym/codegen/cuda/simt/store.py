"""C text of the end of a kernel: combining threads, epilogue, stores; and the second kernel of a split reduction."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack

from gensor_gym.codegen.cuda.index import flat, in_tile, make_site, neutral, origin, spatial_loops
from gensor_gym.codegen.cuda.map import apply_stage
from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.simt.compute import accumulator, combine, wide_axes
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, narrowed, remainder, total, widened
from gensor_gym.operators.types import Access

FINISH_THREADS = 256
"""Number of threads in a block of the second kernel of a split reduction."""


def write_combine(out: Writer, plan: BlockPlan) -> None:
    """Write code that combines the partial results of threads that share an output into the first of these threads.

    Threads of a warp combine by shuffles, warps through shared memory.
    """
    if plan.reduce_threads == 1:
        return
    kind, team = SCALARS[plan.op.accumulator].name, min(plan.reduce_threads, plan.warp)
    out.note(f"partial results of {plan.reduce_threads} threads meet in the first of them")
    mask = _write_mask(out, plan) if plan.dialect.names_lanes else ""
    target = accumulator(plan)
    with out.nest(spatial_loops(plan, plan.op.spatial)):
        out.line("#pragma unroll")
        with out.block(f"for (int distance = {team // 2}; distance > 0; distance /= 2)"):
            out.line(f"const {kind} other = {plan.dialect.shuffle_down(mask, target, 'distance', team)};")
            out.line(f"{target} = {combine(plan, target, 'other')};")
    if plan.reduce_threads > plan.warp:
        _write_exchange(out, plan, kind, target)
    out.line("if (reduce_thread != 0) return;")
    out.line()


def _write_mask(out: Writer, plan: BlockPlan) -> str:
    """Return the C text of the mask of the thread's warp, and write its declaration if necessary.

    The last warp of a block may have fewer lanes.
    """
    rest = plan.threads % plan.warp
    if not rest:
        return "0xffffffffu"
    short = f"0x{(1 << rest) - 1:x}u"
    full = f"thread < {plan.threads - rest} ? 0xffffffffu : {short}"
    out.line(f"const unsigned lanes = {full if plan.threads > plan.warp else short};")
    return "lanes"


def _write_exchange(out: Writer, plan: BlockPlan, kind: str, target: str) -> None:
    """Write code that combines the results of warps that share an output, through shared memory.

    The memory is an array [elements of the register tile, warps of the block].
    """
    warp = plan.warp
    warps, team = plan.threads // warp, plan.reduce_threads // warp
    out.line(f"{kind} *warp_results = reinterpret_cast<{kind} *>(shared_memory);")
    row = "0"
    for a in wide_axes(plan):
        row = total([(plan.register[a] if row != "0" else 1, row), (1, make_site(plan).index(a))])
    loops = spatial_loops(plan, plan.op.spatial)
    with out.guarded([f"thread % {warp} == 0"]), out.nest(loops):
        out.line(f"warp_results[{total([(warps, row), (1, f'thread / {warp}')])}] = {target};")
    out.line("__syncthreads();")
    with out.guarded(["reduce_thread == 0"]), out.nest([*loops, Loop("warp", str(team), 1, 0)]):
        address = total([(warps, row), (1, f"thread / {warp}"), (1, "warp")])
        value = combine(plan, target, f"warp_results[{address}]")
        out.line(f"{target} = warp == 0 ? {target} : {value};")


def write_store(out: Writer, plan: BlockPlan) -> None:
    """Write the epilogue and the stores of a thread's outputs.

    A slice of a split reduction stores partial sums to the workspace.
    """
    op, width = plan.op, plan.store_width()
    axis = plan.sole_mover(op.write, len(op.write.view) - 1) if width > 1 else -1
    with ExitStack() as stack:
        indices = _enter_outputs(out, plan, stack, axis, width)
        address = flat(op.write, indices)
        if width > 1:
            write_run(
                out, plan, indices, width, "lane", lambda lane: accumulator(plan, axis, width, lane),
                lambda each: write_operand(out, each, indices, axis, "lane", width if _lies(plan, each, axis, width) else 1),
            )  # fmt: skip
        elif plan.slices > 1:
            out.line(f"partial[{address}] = {accumulator(plan)};")
        else:
            value = _finished(out, plan, accumulator(plan), _scalar_operands(plan, indices))
            out.line(f"{op.output.name}[{address}] = {narrowed(op.output.dtype, value)};")


def _enter_outputs(out: Writer, plan: BlockPlan, stack: ExitStack, axis: int, width: int) -> list[str]:
    site = make_site(plan, axis, width)
    indices = ["0"] * len(plan.names)
    for a in plan.op.spatial:
        stack.enter_context(out.nest(spatial_loops(plan, (a,), axis, width)))
        declare_index(out, plan, stack, indices, a, total([(1, origin(plan, a)), (1, in_tile(plan, a, site))]))
    return indices


def declare_index(out: Writer, plan: BlockPlan, stack: ExitStack, indices: list[str], axis: int, text: str) -> None:
    """Write the declaration of `out_<axis>` as `text`, put its name into `indices`, and guard it if tiles overhang.

    Do nothing if `text` is "0".
    """
    if text == "0":
        return
    indices[axis] = f"out_{plan.names[axis]}"
    out.line(f"const int {indices[axis]} = {text};")
    stack.enter_context(out.guarded([f"{indices[axis]} < {plan.op.extents[axis]}"] if plan.overhang[axis] else []))


def write_run(
    out: Writer,
    plan: BlockPlan,
    indices: list[str],
    width: int,
    lane: str,
    element: Callable[[str], str],
    operand: Callable[[Access], str],
) -> None:
    """Write one store of `width` adjacent finished elements, or of their partial sums if the reduction is split.

    `element` returns C text of a lane's accumulator. `operand` returns C text of an epilogue stage's operand for the loop
    variable `lane`, and may write a line that loads it.
    """
    op, split = plan.op, plan.slices > 1
    dtype, values = op.accumulator if split else op.output.dtype, [element(str(i)) for i in range(width)]
    if not split and (op.epilogue or op.divisor != 1):
        operands = [operand(stage.access) if stage.access else None for stage in op.epilogue]
        out.line(f"{SCALARS[op.accumulator].name} finished[{width}];")
        with out.nest([Loop(lane, str(width))]):
            value = _finished(out, plan, element(lane), operands)
            out.line(f"finished[{lane}] = {value};")
        values = [f"finished[{i}]" for i in range(width)]
    target = f"{'partial' if split else op.output.name}[{flat(op.write, indices)}]"
    write_elements(out, dtype, target, [narrowed(dtype, value) for value in values])


def write_elements(out: Writer, dtype: str, target: str, values: list[str]) -> None:
    """Write a store of adjacent elements from `target` on; several elements are stored as one aligned vector."""
    if len(values) == 1:
        out.line(f"{target} = {values[0]};")
        return
    vector = f"{SCALARS[dtype].vector}{len(values)}"
    out.line(f"*reinterpret_cast<{vector} *>(&{target}) = {vector}{{{', '.join(values)}}};")


def _lies(plan: BlockPlan, access: Access, axis: int, width: int) -> bool:
    """Return whether `width` elements of an epilogue operand along the output's innermost axis are an aligned vector."""
    last = len(access.view) - 1
    alike = plan.sole_mover(access, last) == axis and access.coefficients[last][axis] == 1
    return alike and plan.global_width(access, plan.inner[axis]) >= width


def write_operand(out: Writer, access: Access, indices: list[str], axis: int, lane: str, width: int) -> str:
    """Return the C text of element `lane` along `axis` of an epilogue operand, counted from `indices`.

    If `width` is more than 1, a line that loads `width` elements at once is written before.
    """
    name, scalar = access.tensor.name, SCALARS[access.tensor.dtype]
    if width == 1:
        at = [total([(1, index), (1, lane if a == axis else "0")]) for a, index in enumerate(indices)]
        return widened(access.tensor.dtype, f"{name}[{flat(access, at)}]")
    vector = f"{scalar.vector}{width}"
    out.line(f"const {vector} {name}_group = *reinterpret_cast<const {vector} *>(&{name}[{flat(access, indices)}]);")
    parts = ", ".join(f"{name}_group.{part}" for part in "xyzw"[:width])
    out.line(f"const {scalar.name} {name}_reg[{width}] = {{{parts}}};")
    return widened(access.tensor.dtype, f"{name}_reg[{lane}]")


def _scalar_operands(plan: BlockPlan, indices: list[str]) -> list[str | None]:
    accesses = [stage.access for stage in plan.op.epilogue]
    return [widened(a.tensor.dtype, f"{a.tensor.name}[{flat(a, indices)}]") if a else None for a in accesses]


def _finished(out: Writer, plan: BlockPlan, value: str, operands: list[str | None]) -> str:
    op = plan.op
    kind = SCALARS[op.accumulator].name
    if op.divisor == 1 and not op.epilogue:
        return value
    divide = f" / {op.divisor}" + (".0f" if kind == "float" else "") if op.divisor != 1 else ""
    out.line(f"{kind} value = {value}{divide};")
    for stage, operand in zip(op.epilogue, operands, strict=True):
        out.line(f"value = {apply_stage(op, stage.name, 'value', operand)};  // {stage.name}")
    return "value"


def write_finish(out: Writer, plan: BlockPlan) -> None:
    """Write the body of the second kernel of a split reduction.

    It combines the slices of one output element in order, applies the epilogue and stores the element. Consecutive threads have
    adjacent elements in memory.
    """
    op = plan.op
    kind, size = SCALARS[op.accumulator].name, op.output.size
    out.line(f"const int element = blockIdx.x * {FINISH_THREADS} + threadIdx.x;")
    if size % FINISH_THREADS:
        out.line(f"if (element >= {size}) return;")
    divisor = math.prod(op.extents[a] for a in op.spatial)
    indices, first = ["0"] * len(plan.names), True
    strides = op.write.axis_strides()
    for a in sorted(op.spatial, key=lambda a: -strides[a]):
        divisor //= op.extents[a]
        if op.extents[a] > 1:
            indices[a] = f"out_{plan.names[a]}"
            out.line(f"const int {indices[a]} = {remainder('element', divisor, 0 if first else op.extents[a])};")
            first = False
    out.line(f"const int address = {flat(op.write, indices)};")
    out.line(f"const {kind} *partial = reinterpret_cast<const {kind} *>(workspace) + address;")
    out.line(f"{kind} sum = {neutral(plan)};")
    with out.nest([Loop("slice", "SLICES")]):
        out.line(f"sum = {combine(plan, 'sum', f'partial[slice * {size}]')};")
    value = _finished(out, plan, "sum", _scalar_operands(plan, indices))
    out.line(f"{op.output.name}[address] = {narrowed(op.output.dtype, value)};")
