"""Text of the end of a wgmma kernel: epilogue and stores from registers.

A thread holds pairs of neighbouring columns, and rows of 16-bit elements have whole pairs: all is stored in pairs.
"""

from __future__ import annotations

from gensor_gym.codegen.cuda_index import flat, origin
from gensor_gym.codegen.cuda_map import apply_stage
from gensor_gym.codegen.cuda_text import Loop, Writer, total, widened
from gensor_gym.codegen.wgmma_plan import INSTRUCTION_ROWS, WgmmaPlan
from gensor_gym.operators.types import Access


def write_store(out: Writer, plan: WgmmaPlan) -> None:
    """Finish and store this thread's accumulators; a slice of a split reduction stores sums to the workspace.

    Of every 64 x 8 elements it holds two pairs: rows r and r + 8, accumulators 4 i + 2 half and the next.
    """
    m, n = (plan.op.axes[a] for a in (plan.roles.m, plan.roles.n))
    indices = [origin(plan, a) for a in range(len(plan.op.axes))]
    row, column = (total([(1, indices[a]), (1, f"first_{plan.op.axes[a].name}")]) for a in (plan.roles.m, plan.roles.n))
    indices[plan.roles.m], indices[plan.roles.n] = f"out_{m.name}", f"out_{n.name}"
    with out.nest([Loop("rows", "ROW_BLOCKS"), Loop("half", "2")]):
        out.line(f"const int out_{m.name} = {row} + rows * {INSTRUCTION_ROWS} + half * 8;")
        with (
            out.guarded([f"out_{m.name} < {m.extent}"] if plan.overhang[plan.roles.m] else []),
            out.nest([Loop("group", f"REG_{n.name.upper()} / 8")]),
        ):
            out.line(f"const int out_{n.name} = {column} + group * 8;")
            with out.guarded([f"out_{n.name} < {n.extent}"] if plan.overhang[plan.roles.n] else []):
                out.line("const float *sums = &acc[rows][group * 4 + half * 2];")
                if plan.slices > 1:
                    address = total([(plan.op.output.size, "slice"), (1, flat(plan.op.write, indices))])
                    out.line(f"*reinterpret_cast<float2 *>(&workspace[{address}]) = float2{{sums[0], sums[1]}};")
                else:
                    _write_pair(out, plan, "sums[0]", "sums[1]", indices)


def _write_pair(out: Writer, plan: WgmmaPlan, first: str, second: str, indices: list[str]) -> None:
    """Apply the epilogue in float32 to two neighbours along n and store them."""
    op, dtype = plan.op, plan.op.output.dtype
    values = [first, second]
    if op.epilogue:
        out.line(f"float left = {first}, right = {second};")
        values = ["left", "right"]
    for stage in op.epilogue:
        operands = [None, None] if stage.access is None else _operands(out, plan, stage.access, indices)
        for value, operand in zip(values, operands, strict=True):
            out.line(f"{value} = {apply_stage(op, stage.name, value, operand)};  // {stage.name}")
    target = f"{op.output.name}[{flat(op.write, indices)}]"
    out.line(f"*reinterpret_cast<unsigned *>(&{target}) = pack_{dtype}({', '.join(values)});")


def _operands(out: Writer, plan: WgmmaPlan, access: Access, indices: list[str]) -> list[str | None]:
    """A stage's operand for both elements, loaded as a pair where it has one value for each column."""
    name, dtype = access.tensor.name, access.tensor.dtype
    element = f"{name}[{flat(access, indices)}]"
    if access.axis_strides()[plan.roles.n] == 0:
        return [widened(dtype, element)] * 2
    out.line(f"const unsigned {name}_pair = *reinterpret_cast<const unsigned *>(&{element});")
    halves = (f"{name}_pair", f"{name}_pair >> 16")
    return [widened(dtype, f"static_cast<unsigned short>({half})") for half in halves]
