"""Stores of int8 results whose lanes are adjacent in memory, after products in tile registers.

Sums stay in the memory where tile registers left them until their epilogue. Four vectors at a time are narrowed to 64 bytes.
Stored one vector after another, a 1x1 convolution of 56x56 pixels from 64 to 256 channels with a residual takes 1.16 times as
long (one core of an Intel Xeon with AMX).
"""

from __future__ import annotations

from gensor_gym.codegen.c.amx.tiling import LANES
from gensor_gym.codegen.c.elements.quantized import real
from gensor_gym.codegen.c.operand import Reader
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.text import add

FOUR = 4
"""Number of vectors of 32-bit results that fill a vector of bytes."""
Place = tuple[int, int]


def in_fours(reader: Reader) -> bool:
    """Return whether results are stored four vectors at a time."""
    plan = reader.plan
    if plan.tiling is None or plan.op.output.dtype != "int8" or plan.output.lane_stride != 1:
        return False
    if plan.splits > 1 or plan.is_carried or not plan.op.epilogue or any(chunk.width != LANES for chunk in plan.chunks):
        return False
    has_rest = not plan.groups_channels and plan.op.extents[plan.group] % plan.tiling.step
    return not has_rest and not any(reader.sticks_out(a) for a in plan.op.spatial)


def is_signed(plan: LoopPlan) -> bool:
    """Return whether bytes of the scalar operand are signed, since they are not packed; sums then have no excess."""
    return plan.groups_bytes and plan.reads[0].packing is None


def fours(plan: LoopPlan) -> tuple[list[list[Place]], list[Place]]:
    """Return (groups of four vectors, vectors left) of a register tile, each vector as (row, index of the vector)."""
    places = [(r, c) for r in range(len(plan.rows)) for c in range(len(plan.chunks))]
    whole = len(places) // FOUR * FOUR
    return [places[i : i + FOUR] for i in range(0, whole, FOUR)], places[whole:]


def loaded(plan: LoopPlan, r: int, c: int) -> str:
    """Return the C statement that declares the sum of one vector of a row."""
    start = "" if is_signed(plan) else f"start_0_{c} + "
    assert plan.tiling is not None
    return f"vec{LANES} sum_{r}_{c} = {start}load_{LANES}(&sums_of_tiles[{plan.tiling.place(r)}][{plan.chunks[c].offset}]);"


def equal_in_rows(reader: Reader, c: int) -> tuple[list[str], dict[str, str]]:
    """Return C statements that load the factors and addends that are equal in all rows, and their variables by name.

    Otherwise compilers load them again after each store of bytes, which may change any memory.
    """
    lines, names = [], {}
    for operand in reader.plan.stages:
        if operand is not None and operand.dtype != "int8" and len(reader.distinct(operand)) == 1:
            value, is_real = reader.value(operand, reader.plan.rows[0], reader.plan.chunks[c]), operand.dtype == "float32"
            names[operand.name] = name = f"{operand.name}_of_{c}"
            kind = f"{'real' if is_real else 'vec'}{LANES}"
            lines.append(f"const {kind} {name} = {real(value) if is_real else value} - ({kind}){{0}};")
    return lines, names


def store(reader: Reader, group: list[Place]) -> list[str]:
    """Return C statements that store four finished vectors; vectors of one row are adjacent."""
    plan, names = reader.plan, [f"sum_{r}_{c}" for r, c in group]
    at = [add(plan.output.name, reader.index(plan.output, plan.rows[r], plan.chunks[c])) for r, c in group]
    rows, joined = [r for r, _ in group], f"joined_{LANES}({', '.join([*names, *(f'{name}_zero' for name in names)])})"
    if len(set(rows)) == 1:
        return [f"store_whole_{LANES}({at[0]}, {joined});"]
    if rows[0] == rows[1] and rows[2] == rows[3]:
        return [f"store_halves_{LANES}({at[0]}, {at[2]}, {joined});"]
    return [f"store_quarters_{LANES}({', '.join(at)}, {joined});"]
