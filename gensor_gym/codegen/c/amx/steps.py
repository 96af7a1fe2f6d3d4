"""C text of products in tile registers: a register tile's sums are up to four tiles, added to those of the vectors at the end.

A step multiplies 64 bytes of each row of the scalar operand with 16 groups of rows of the other. What is left of the reduction,
and guarded register tiles, are computed in vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from gensor_gym.codegen.c.operand import SCALAR, Reader, bounds
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.text import Lines, add, ceil_div
from gensor_gym.operators.types import ITEM_BYTES

ROWS, ROW_BYTES, LANES = 16, 64, 16
"""Rows of a tile register, bytes of a row, and lanes of its row of 32-bit sums (Intel 64 manual, volume 1, chapter 18)."""
MOST_SUMS = 4
"""Most tiles of sums, the first of eight registers."""
SCALARS, COLUMNS = (4, 5), (6, 7)
"""Numbers of the registers that hold rows of the scalar operand, by part of the rows, and columns of the other in turn."""
_ALIGNED = f"__attribute__((aligned({ROW_BYTES})))"


@dataclass(frozen=True)
class Tiling:
    """Division of a register tile's rows among tile registers: `parts` are (first row, number of rows)."""

    parts: tuple[tuple[int, int], ...]
    pitch: int
    """Bytes between two rows of the scalar operand."""
    step: int
    """Elements of the reduction that a tile holds."""


def tiling(plan: LoopPlan) -> Tiling | None:
    """Return how a plan's whole register tiles are multiplied in tile registers; None if they are multiplied in vectors.

    Rows lie along one axis, at equal distances in the scalar operand, and all multiply the same columns.
    """
    op = plan.op
    if plan.group < 0 or plan.groups_lanes or plan.groups_channels or not plan.program.hardware.tensor_rate(op.dtype, 1):
        return None
    scalar, lanes = plan.reads
    axes = [a for a in op.spatial if a != plan.vector and plan.tiles[0][a] > 1]
    step = ROW_BYTES // ITEM_BYTES[op.dtype]
    if len(axes) > 1 or any(chunk.width != LANES for chunk in plan.chunks) or op.extents[plan.group] < step:
        return None
    if scalar.strides[plan.group] != 1 or scalar.tables or scalar.guarded or any(lanes.strides[a] for a in axes):
        return None
    rows, parts = len(plan.rows), ceil_div(len(plan.rows), ROWS)
    if parts * len(plan.chunks) > MOST_SUMS or parts > len(SCALARS):
        return None
    first = ceil_div(rows, parts)
    pitch = ITEM_BYTES[op.dtype] * (scalar.strides[axes[0]] if axes else step)
    return Tiling(tuple((start, min(first, rows - start)) for start in range(0, rows, first)), pitch, step)


def shapes(plan: LoopPlan) -> str:
    """Return the C definition of the shapes of tile registers; empty if the plan uses none."""
    found = tiling(plan)
    if found is None:
        return ""
    rows = {_sums(found, p, c): size for p, (_, size) in enumerate(found.parts) for c in range(len(plan.chunks))}
    rows |= {SCALARS[p]: size for p, (_, size) in enumerate(found.parts)} | dict.fromkeys(COLUMNS, ROWS)
    widths, counts = (", ".join(f"[{number}] = {size}" for number, size in sorted(sizes.items()))
                      for sizes in (dict.fromkeys(rows, ROW_BYTES), rows))  # fmt: skip
    return f"static const struct tile_shapes shapes_of_tiles = {{1, .row_bytes = {{{widths}}}, .rows = {{{counts}}}}};\n"


def _sums(found: Tiling, part: int, chunk: int) -> int:
    """Return the number of the tile register with the sums of a part of the rows and a vector."""
    return chunk * len(found.parts) + part


def products(lines: Lines, reader: Reader, found: Tiling) -> str:
    """Write the products of whole steps of the reduction in tiles, and add them to the accumulators.

    Declares the index along the reduction, and returns its name; products from this index on are left.
    """
    plan = reader.plan
    axis, (begin, end) = plan.group, bounds(plan, plan.group)
    name, width = plan.axes[axis], LANES * len(plan.chunks)
    numbers = [(p, c) for p in range(len(found.parts)) for c in range(len(plan.chunks))]
    lines.add(*(f"const long {plan.axes[a]} = 0;" for a in plan.op.reduce if a != axis))
    lines.add(f"long {name} = {begin};")
    with lines.block("if (has_tiles)"):
        if reader.edge:
            lines.add(f"{plan.reads[0].c_type} rows_of_tiles[{len(plan.rows)}][{found.step}] {_ALIGNED};")
        lines.add(*(f"tile_zero({_sums(found, *key)});" for key in numbers))
        with lines.block(f"for (; {name} + {found.step} <= {end}; {name} += {found.step})"):
            _step(lines, reader, found)
        lines.add(f"{plan.accumulator} sums_of_tiles[{len(plan.rows)}][{width}] {_ALIGNED};")
        for p, c in numbers:
            place = f"&sums_of_tiles[{found.parts[p][0]}][{LANES * c}]"
            lines.add(f"tile_store({_sums(found, p, c)}, {place}, {4 * width});")
        for r in range(len(plan.rows)):
            for c, chunk in enumerate(plan.chunks):
                lines.add(f"sum_{r}_{c} += load_{LANES}(&sums_of_tiles[{r}][{chunk.offset}]);")
    return name


def _step(lines: Lines, reader: Reader, found: Tiling) -> None:
    plan = reader.plan
    scalar, lanes = plan.reads
    places = [add(scalar.name, reader.index(scalar, row, SCALAR)) for row in plan.rows]
    pitch = plan.group_size * lanes.strides[plan.group] * ITEM_BYTES[plan.op.dtype]
    if reader.edge:  # the last row may repeat, so that rows have no equal distances
        lines.add(*(f"memcpy(rows_of_tiles[{r}], {place}, {ROW_BYTES});" for r, place in enumerate(places)))
        places = [f"rows_of_tiles[{r}]" for r in range(len(plan.rows))]
    for number, (start, _) in zip(SCALARS, found.parts, strict=False):
        lines.add(f"tile_load({number}, {places[start]}, {ROW_BYTES if reader.edge else found.pitch});")
    for c, chunk in enumerate(plan.chunks):
        column = COLUMNS[c % len(COLUMNS)]
        lines.add(f"tile_load({column}, {add(lanes.name, reader.index(lanes, plan.rows[0], chunk))}, {pitch});")
        for p, _ in enumerate(found.parts):
            lines.add(f"tile_dot_pairs({_sums(found, p, c)}, {SCALARS[p]}, {column});")
