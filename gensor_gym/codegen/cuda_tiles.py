"""Which part of the work is a block's: slice of the reduction, tile of the output (in rows, or in groups by knob raster)."""

from __future__ import annotations

import math

from gensor_gym.codegen.cuda_plan import Plan
from gensor_gym.codegen.cuda_text import SCALARS, Writer, remainder, total


def write_slice(out: Writer, plan: Plan) -> None:
    """The range of steps of this block's slice; the last slices may be empty."""
    each = -(-plan.steps // plan.slices)
    slice_index = "blockIdx.x / TILES" if plan.tiles > 1 else "blockIdx.x"
    kind = SCALARS[plan.op.accumulator].name
    out.line(f"const int slice = {slice_index};")
    out.line(f"const int first_step = slice * {each};")
    bounded = f"first_step + {each}"
    if each * plan.slices > plan.steps:
        bounded = f"{bounded} < STEPS ? {bounded} : STEPS"
    out.line(f"const int last_step = {bounded};")
    out.line(f"{kind} *partial = reinterpret_cast<{kind} *>(workspace) + slice * {plan.op.output.size};")


def write_block_tile(out: Writer, plan: Plan, work: str = "blockIdx.x") -> None:
    """First index of the block tile along every axis that has several tiles, `block_<axis>`; `work` numbers tiles and slices."""
    live = [a for a in plan.op.spatial if plan.program.grid[a] > 1]
    if not live:
        return
    out.line(f"const int tile = {work} % TILES;" if plan.slices > 1 else f"const int tile = {work};")
    rows = plan.program.grid[live[-2]] if len(live) > 1 else 1
    group = min(plan.program.knob("raster"), rows)
    divisor = plan.tiles
    swizzled = live[-2:] if group > 1 else []
    for a in live:
        count, name = plan.program.grid[a], plan.names[a]
        divisor //= count
        if a not in swizzled:
            index = remainder("tile", divisor, 0 if a == live[0] else count)
            out.line(f"const int block_{name} = {total([(1, index)])} * BLOCK_{name.upper()};")
    if swizzled:
        _write_raster(out, plan, swizzled, group, outer=len(live) > 2)


def _write_raster(out: Writer, plan: Plan, axes: list[int], group: int, outer: bool) -> None:
    """Tiles of the last two axes in groups of rows, column by column within a group; the last group may be shorter."""
    (row, column), rest = axes, plan.program.grid[axes[0]] % group
    rows, columns = plan.program.grid[row], plan.program.grid[column]
    place = f"tile % {math.prod((rows, columns))}" if outer else "tile"
    out.line(f"const int place = {place};")
    out.line(f"const int row_group = place / {group * columns} * {group};  // groups of {group} rows of tiles")
    height = str(group)
    if rest:
        out.line(f"const int group_rows = {rows} - row_group < {group} ? {rows} - row_group : {group};")
        height = "group_rows"
    within = f"place % {group * columns}"
    row_name, column_name = plan.names[row], plan.names[column]
    out.line(f"const int block_{row_name} = (row_group + {within} % {height}) * BLOCK_{row_name.upper()};")
    out.line(f"const int block_{column_name} = {within} / {height} * BLOCK_{column_name.upper()};")
