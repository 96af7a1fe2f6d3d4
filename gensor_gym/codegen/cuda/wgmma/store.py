"""C text of the end of a wgmma kernel: epilogue and stores from registers.

Of every 8 columns a thread has two adjacent ones, and four lanes have all 8. With 4-byte elements these 8 are a whole sector of
32 bytes. With 2-byte elements a sector has 16 columns: if the consumer's columns are a multiple of 16, adjacent lanes first swap
pairs, so that each lane has four contiguous columns. Columns of a convolution are pixels of several rows and images. A tile has a
multiple of 8 columns of a row, so columns of a pair or of four are adjacent in memory. The number of elements in one store
divides the row's length.

An output with channels last has contiguous elements along m, not along columns. Then a warp transposes every 8 x 8 sums over its
lanes, so that a lane has four adjacent elements along m of one column, and four lanes have all 16 rows of the warp.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gensor_gym.codegen.cuda.index import flat, origin
from gensor_gym.codegen.cuda.map import apply_stage
from gensor_gym.codegen.cuda.simt.store import write_elements
from gensor_gym.codegen.cuda.text import HALVES, SCALARS, Loop, Writer, narrowed, remainder, total, widened
from gensor_gym.codegen.cuda.wgmma.plan import WgmmaPlan
from gensor_gym.graph.matrices.choices import WGMMA_ROWS
from gensor_gym.operators.types import Access

Finish = Callable[[Writer, WgmmaPlan, list[str], list[str]], None]
"""Writes what becomes of adjacent elements with some C texts; the second list has the indices of the first element."""
_OF_FOUR = "lane % 2 * 8 + lane % 4 / 2 * 4"
"""C text of the first of four adjacent elements, out of 16, that a lane has after swapping pairs with an adjacent lane."""


def run_axis(plan: WgmmaPlan) -> int:
    """Return the axis along which a thread stores adjacent elements: n, or m with channels last. In a buffer of boxes it is n."""
    return plan.roles.n if plan.boxes or plan.op.write.axis_strides()[plan.roles.n] == 1 else plan.roles.m


def is_turned(plan: WgmmaPlan) -> bool:
    """Return whether a thread stores adjacent elements along m, as with channels last."""
    return run_axis(plan) == plan.roles.m


def run_length(plan: WgmmaPlan) -> int:
    """Return the number of adjacent elements in a thread's run: 4 along m, or if lanes swap pairs for a 16-bit output, else 2."""
    swapped = plan.tile[1] % 16 == 0 and plan.slices == 1 and plan.op.output.dtype in HALVES and plan.boxes is None
    return 4 if is_turned(plan) or swapped else 2


def first_row(plan: WgmmaPlan) -> str:
    """Return the C text of this lane's row in every 8 rows.

    If its adjacent elements are along m, it is the first row in every 16.
    """
    return _OF_FOUR if is_turned(plan) else "lane / 4"


def first_column(plan: WgmmaPlan) -> str:
    """Return the C text of a lane's first column in each group of columns: of 16 columns if lanes swap pairs, else of 8."""
    if is_turned(plan):
        return "lane / 4"
    return _OF_FOUR if run_length(plan) == 4 else "lane % 4 * 2"


def store_length(plan: WgmmaPlan) -> int:
    """Return the number of adjacent elements in one store.

    It is all of a thread's run, or a number that divides the length of an output row.
    """
    return math.gcd(run_length(plan), plan.op.extents[run_axis(plan)])


def write_store(
    out: Writer, plan: WgmmaPlan, held: str = "acc[rows]", write_held: Callable[[Writer, WgmmaPlan], None] | None = None
) -> None:
    """Write the epilogue and the stores of a thread's accumulators.

    A slice of a split reduction is stored to the workspace.

    `held` is C text of the array with the accumulators of one block of rows. `write_held` writes code that computes this array. A
    thread has four elements of each 64 x 8 group i: accumulators 4 i and 4 i + 1 are adjacent in a row r, accumulators 4 i + 2
    and 4 i + 3 in row r + 8.
    """
    m, m_rows = plan.op.axes[plan.roles.m], plan.register[plan.roles.m]
    indices = [origin(plan, a) for a in range(len(plan.op.axes))]
    row = total([(1, indices[plan.roles.m]), (1, f"first_{m.name}")])
    indices[plan.roles.m] = f"out_{m.name}"
    inside = [f"out_{m.name} < {m.extent}"] if plan.overhang[plan.roles.m] else []
    half = "" if is_turned(plan) else " + half * 8"
    if plan.tile[0] > m_rows:
        inside.append(f"first_{m.name}{half} < {m_rows}")
    if run_length(plan) == 4:
        out.line("const bool odd = lane % 2;")
    with out.nest([Loop("rows", "ROW_BLOCKS")]):
        if write_held is not None:
            write_held(out, plan)
        with out.nest([] if is_turned(plan) else [Loop("half", "2")]):
            out.line(f"const int out_{m.name} = {row} + rows * {WGMMA_ROWS}{half};")
            _write_runs(out, plan, held, indices, inside)


def _write_runs(out: Writer, plan: WgmmaPlan, held: str, indices: list[str], inside: list[str]) -> None:
    length, kind = run_length(plan), SCALARS[plan.op.accumulator].name
    columns = 8 if is_turned(plan) else 4 * length
    with out.nest([Loop("group", f"{plan.columns_text} / {columns}")]):
        inside = inside + write_column(out, plan, columns, indices)
        if is_turned(plan):
            out.line(f"const {kind} *pairs = &{held}[group * 4];")
            out.line(f"{kind} sums[6] = {{pairs[0], pairs[1], 0, 0, pairs[2], pairs[3]}};  // of both halves, 4 apart")
            out.line("turn_tile(sums[0], sums[1]);")
            out.line("turn_tile(sums[4], sums[5]);")
        else:
            out.line(f"const {kind} *sums = &{held}[group * {2 * length} + half * 2];")
        _write_run(out, length, kind)
        write_guarded(out, plan, indices, inside, _write_finished)


def write_column(out: Writer, plan: WgmmaPlan, columns: int, indices: list[str]) -> list[str]:
    """Write declarations of the output indices of a store's first column, and put them into `indices`.

    Return guards of these indices. The text's variable `group` counts groups of `columns` columns.
    """
    n = plan.op.axes[plan.roles.n]
    at = total([(1, f"first_{plan.column_name}"), (columns, "group")])
    if len(plan.column_axes) == 1:
        out.line(f"const int out_{n.name} = {total([(1, indices[plan.roles.n]), (1, at)])};")
        indices[plan.roles.n] = f"out_{n.name}"
        return [f"out_{n.name} < {n.extent}"] if plan.overhang[plan.roles.n] else []
    out.line(f"const int column = {at};")
    divisor, outermost, inside = plan.tile[1], True, []
    for a in plan.column_axes:
        divisor //= plan.register[a]
        if plan.register[a] == 1:
            index = "0"
        else:
            index = remainder("column", divisor, 0 if outermost else plan.register[a])
            outermost = False
        name = plan.names[a]
        first = f"pixel_{name}" if plan.program.threads[a] > 1 else "0"
        place = total([(1, origin(plan, a)), (1, first), (1, index)])
        if place != "0":
            out.line(f"const int out_{name} = {place};")
            indices[a] = f"out_{name}"
            inside += [f"out_{name} < {plan.op.extents[a]}"] if plan.overhang[a] else []
    return inside


def write_pixel_origin(out: Writer, plan: WgmmaPlan) -> None:
    """Write declarations of `pixel_<axis>`, the start of a consumer's pixels in the block tile.

    Only axes along which the block has several consumers have one.
    """
    divisor, shared = plan.consumers[1], [a for a in plan.column_axes if plan.program.threads[a] > 1]
    for a in shared:
        count, name = plan.program.threads[a], plan.names[a]
        divisor //= count
        index = remainder("consumer_column", divisor, 0 if a == shared[0] else count)
        out.line(f"const int pixel_{name} = {index} * REG_{name.upper()};")


def write_guarded(out: Writer, plan: WgmmaPlan, indices: list[str], inside: list[str], write: Finish) -> None:
    """Write what `write` writes of each adjacent part of a run that is stored at once, guarded by the conditions `inside`.

    `indices` are those of the run's first element.
    """
    along, length = run_axis(plan), store_length(plan)
    limited = indices[along], f"first_{plan.names[along]}"
    for first in range(0, run_length(plan), length):
        place = [total([(1, index)], first if a == along else 0) for a, index in enumerate(indices)]
        conditions = [
            f"{total([(1, index)], first)} < {limit}" if index in limited else f"{index} < {limit}"
            for index, limit in (condition.split(" < ") for condition in inside)
        ]
        with out.guarded(conditions):
            write(out, plan, [f"run[{first + i}]" for i in range(length)], place)


def _write_run(out: Writer, length: int, kind: str) -> None:
    if length == 2:
        out.line(f"{kind} run[2] = {{sums[0], sums[1]}};")
        return
    for name, index in (("first", 0), ("second", 1)):
        given = f"odd ? sums[{index}] : sums[{4 + index}]"
        out.line(f"const {kind} {name} = __shfl_xor_sync(0xffffffffu, {given}, 1);")
    values = "odd ? first : sums[0], odd ? second : sums[1], odd ? sums[4] : first, odd ? sums[5] : second"
    out.line(f"{kind} run[4] = {{{values}}};")


def write_epilogue(out: Writer, plan: WgmmaPlan, values: list[str], indices: list[str]) -> None:
    """Write the epilogue of adjacent elements with the C text `values`; `indices` are those of the first one."""
    for stage in plan.op.epilogue:
        operands = [None] * len(values) if stage.access is None else _operands(out, plan, stage.access, indices, len(values))
        for value, operand in zip(values, operands, strict=True):
            out.line(f"{value} = {apply_stage(plan.op, stage.name, value, operand)};  // {stage.name}")


def _write_finished(out: Writer, plan: WgmmaPlan, values: list[str], indices: list[str]) -> None:
    op, dtype, length = plan.op, plan.op.output.dtype, len(values)
    address = flat(op.write, indices)
    if plan.slices > 1:
        place = total([(op.output.size, "slice"), (1, address)])
        vector = f"{SCALARS[op.accumulator].vector}{length if length > 1 else ''}"
        out.line(f"*reinterpret_cast<{vector} *>(&workspace[{place}]) = {vector}{{{', '.join(values)}}};")
        return
    write_epilogue(out, plan, values, indices)
    if length == 1 or dtype not in HALVES:
        write_elements(out, dtype, f"{op.output.name}[{address}]", [narrowed(dtype, value) for value in values])
        return
    pairs = [f"pack_{dtype}({values[i]}, {values[i + 1]})" for i in range(0, length, 2)]
    kind, packed = ("uint2", f"uint2{{{', '.join(pairs)}}}") if length == 4 else ("unsigned", pairs[0])
    out.line(f"*reinterpret_cast<{kind} *>(&{op.output.name}[{address}]) = {packed};")


def _operands(out: Writer, plan: WgmmaPlan, access: Access, indices: list[str], length: int) -> list[str | None]:
    """Return the C text of an epilogue operand for each adjacent element of a store.

    An operand with one value per element is loaded as one vector, in a line that is written before, if they are contiguous.
    """
    name, dtype, apart = access.tensor.name, access.tensor.dtype, access.axis_strides()[run_axis(plan)]
    element = f"{name}[{flat(access, indices)}]"
    if apart == 0 or length == 1:
        return [widened(dtype, element)] * length
    if apart > 1:
        return [widened(dtype, f"{name}[{total([(1, flat(access, indices))], apart * i)}]") for i in range(length)]
    kind = f"{SCALARS[dtype].vector}{length}"
    out.line(f"const {kind} {name}_run = *reinterpret_cast<const {kind} *>(&{element});")
    return [widened(dtype, f"{name}_run.{part}") for part in "xyzw"[:length]]
