"""Text of the end of a wgmma kernel: epilogue and stores from registers.

A thread holds pairs of neighbouring columns, one of every 8. Where the consumer's columns are 16s, lanes swap pairs with
their neighbour first, so that each has four columns in a row, and four lanes 32 bytes of the output: a whole sector.
"""

from __future__ import annotations

from gensor_gym.codegen.cuda_index import flat, origin
from gensor_gym.codegen.cuda_map import apply_stage
from gensor_gym.codegen.cuda_text import Loop, Writer, total, widened
from gensor_gym.codegen.wgmma_plan import WgmmaPlan
from gensor_gym.graph.structure import WGMMA_ROWS
from gensor_gym.operators.types import Access


def run_length(plan: WgmmaPlan) -> int:
    """Neighbours along n that a thread stores together."""
    return 4 if plan.tile[1] % 16 == 0 else 2


def first_column(plan: WgmmaPlan) -> str:
    """This lane's first column of every 16 (of every 8 where it stores pairs)."""
    return "lane % 2 * 8 + lane % 4 / 2 * 4" if run_length(plan) == 4 else "lane % 4 * 2"


def write_store(out: Writer, plan: WgmmaPlan) -> None:
    """Finish and store this thread's accumulators; a slice of a split reduction stores sums to the workspace.

    Of every 64 x 8 elements it holds two pairs: rows r and r + 8, accumulators 4 i + 2 half and the next.
    """
    m, n = (plan.op.axes[a] for a in (plan.roles.m, plan.roles.n))
    indices = [origin(plan, a) for a in range(len(plan.op.axes))]
    row, column = (total([(1, indices[a]), (1, f"first_{plan.op.axes[a].name}")]) for a in (plan.roles.m, plan.roles.n))
    indices[plan.roles.m], indices[plan.roles.n] = f"out_{m.name}", f"out_{n.name}"
    inside = [f"out_{m.name} < {m.extent}"] if plan.overhang[plan.roles.m] else []
    inside += [f"out_{n.name} < {n.extent}"] if plan.overhang[plan.roles.n] else []
    length = run_length(plan)
    if length == 4:
        out.line("const bool odd = lane % 2;")
    with out.nest([Loop("rows", "ROW_BLOCKS"), Loop("half", "2")]):
        out.line(f"const int out_{m.name} = {row} + rows * {WGMMA_ROWS} + half * 8;")
        with out.nest([Loop("group", f"REG_{n.name.upper()} / {4 * length}")]):
            out.line(f"const int out_{n.name} = {column} + group * {4 * length};")
            out.line(f"const float *sums = &acc[rows][group * {2 * length} + half * 2];")
            _write_run(out, length)
            with out.guarded(inside):
                _write_finished(out, plan, length, indices)


def _write_run(out: Writer, length: int) -> None:
    """The neighbours that this thread stores: `run`."""
    if length == 2:
        out.line("float run[2] = {sums[0], sums[1]};")
        return
    for name, index in (("first", 0), ("second", 1)):
        given = f"odd ? sums[{index}] : sums[{4 + index}]"
        out.line(f"const float {name} = __shfl_xor_sync(0xffffffffu, {given}, 1);")
    out.line("float run[4] = {odd ? first : sums[0], odd ? second : sums[1], odd ? sums[4] : first, odd ? sums[5] : second};")


def _write_finished(out: Writer, plan: WgmmaPlan, length: int, indices: list[str]) -> None:
    """Apply the epilogue in float32 to the run and store it."""
    op, dtype = plan.op, plan.op.output.dtype
    address = flat(op.write, indices)
    values = [f"run[{i}]" for i in range(length)]
    if plan.slices > 1:
        place = total([(op.output.size, "slice"), (1, address)])
        vector = f"float{length}"
        out.line(f"*reinterpret_cast<{vector} *>(&workspace[{place}]) = {vector}{{{', '.join(values)}}};")
        return
    for stage in op.epilogue:
        operands = [None] * length if stage.access is None else _operands(out, plan, stage.access, indices, length)
        for value, operand in zip(values, operands, strict=True):
            out.line(f"{value} = {apply_stage(op, stage.name, value, operand)};  // {stage.name}")
    pairs = [f"pack_{dtype}({values[i]}, {values[i + 1]})" for i in range(0, length, 2)]
    kind, packed = ("uint2", f"uint2{{{', '.join(pairs)}}}") if length == 4 else ("unsigned", pairs[0])
    out.line(f"*reinterpret_cast<{kind} *>(&{op.output.name}[{address}]) = {packed};")


def _operands(out: Writer, plan: WgmmaPlan, access: Access, indices: list[str], length: int) -> list[str | None]:
    """A stage's operand for all elements of the run, loaded together where it has one value for each column."""
    name, dtype = access.tensor.name, access.tensor.dtype
    element = f"{name}[{flat(access, indices)}]"
    if access.axis_strides()[plan.roles.n] == 0:
        return [widened(dtype, element)] * length
    kind = f"ushort{length}"
    out.line(f"const {kind} {name}_run = *reinterpret_cast<const {kind} *>(&{element});")
    return [widened(dtype, f"{name}_run.{part}") for part in "xyzw"[:length]]
