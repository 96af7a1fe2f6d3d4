"""C text that finds the output tile and the slice of the reduction that a block computes, and the first indices of a step.

A block computes a slice of the reduction for a tile of the output. Tiles are numbered in row-major order, or in groups of rows by
the knob `raster`.
"""

from __future__ import annotations

import math

from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.text import SCALARS, Writer, remainder, total


def write_slice(out: Writer, plan: BlockPlan) -> None:
    """Write declarations of the range of steps in this block's slice of the reduction, and of the slice's part of the workspace.

    The last slices may be empty.
    """
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


def write_step_origin(out: Writer, plan: BlockPlan, step: str, axes: tuple[int, ...]) -> None:
    """Write declarations of `block_<axis>`, the first index of step `step`, for the reduce axes in `axes`.

    Only axes with several steps have one.
    """
    divisor = plan.steps
    moving = [a for a in plan.op.reduce if plan.program.grid[a] > 1]
    for a in moving:
        count, name = plan.program.grid[a], plan.names[a]
        divisor //= count
        if a in axes:
            index = remainder(step, divisor, 0 if a == moving[0] else count)
            out.line(f"const int block_{name} = {index} * STEP_{name.upper()};")


def write_block_tile(out: Writer, plan: BlockPlan, work: str = "blockIdx.x") -> None:
    """Write declarations of `block_<axis>`, the first index of the block tile, along every axis that has several tiles.

    `work` is C text of a number that counts the tiles of the first slice, then those of the next slice, and so on. Blocks of a
    cluster have the same number and adjacent tiles; `rank` selects a block's own tile.
    """
    live = [a for a in plan.op.spatial if plan.grid[a] > 1]
    for a in plan.op.spatial:
        if plan.together[a] > 1 and a not in live:
            out.line(f"const int block_{plan.names[a]} = {_first(plan, a, '')};")
    if not live:
        return
    out.line(f"const int tile = {work} % TILES;" if plan.slices > 1 else f"const int tile = {work};")
    rows = plan.grid[live[-2]] if len(live) > 1 else 1
    group = min(max(1, plan.program.knob("raster") // plan.cluster), rows)
    divisor = plan.tiles
    swizzled = live[-2:] if group > 1 else []
    for a in live:
        count, name = plan.grid[a], plan.names[a]
        divisor //= count
        if a not in swizzled:
            index = remainder("tile", divisor, 0 if a == live[0] else count)
            out.line(f"const int block_{name} = {_first(plan, a, total([(1, index)]))};")
    if swizzled:
        _write_raster(out, plan, swizzled, group, outer=len(live) > 2)


def _first(plan: BlockPlan, axis: int, index: str) -> str:
    """Return the C text of the first index of tile `index` along an axis.

    With a cluster, `index` counts clusters and `rank` their tiles.
    """
    size = f"BLOCK_{plan.names[axis].upper()}"
    if plan.together[axis] == 1:
        return f"{index} * {size}"
    return f"({index} * CLUSTER + rank) * {size}" if index else f"rank * {size}"


def _write_raster(out: Writer, plan: BlockPlan, axes: list[int], group: int, outer: bool) -> None:
    """Write declarations of `block_<axis>` for the last two axes, with tiles in groups of rows and column by column in a group.

    The last group may have fewer rows.
    """
    (row, column), rest = axes, plan.grid[axes[0]] % group
    rows, columns = plan.grid[row], plan.grid[column]
    place = f"tile % {math.prod((rows, columns))}" if outer else "tile"
    out.line(f"const int place = {place};")
    out.line(f"const int row_group = place / {group * columns} * {group};  // groups of {group} rows of tiles")
    height = str(group)
    if rest:
        out.line(f"const int group_rows = {rows} - row_group < {group} ? {rows} - row_group : {group};")
        height = "group_rows"
    within = f"place % {group * columns}"
    out.line(f"const int block_{plan.names[row]} = {_first(plan, row, f'(row_group + {within} % {height})')};")
    out.line(f"const int block_{plan.names[column]} = {_first(plan, column, f'{within} / {height}')};")
