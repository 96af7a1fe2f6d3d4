"""Planning of the boxes in which TMA stores a wgmma kernel's output."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from gensor_gym.codegen.cuda.tensor_map import UNIT, TensorMap
from gensor_gym.codegen.cuda.text import HALVES
from gensor_gym.codegen.cuda.wgmma.boxes.buffers import GROUP, ITEM, MOST_COLUMNS, WARP_ROWS, Boxes
from gensor_gym.codegen.cuda.wgmma.plan import WARPGROUP, WgmmaPlan
from gensor_gym.operators.types import Operator

_PERIOD = 256
"""Bytes after which the permutation of rows of 32 bytes is the same again. Boxes begin at its multiples."""


def with_boxes(plan: WgmmaPlan) -> WgmmaPlan | None:
    """Return the plan with buffers through which TMA stores the output; None if it cannot.

    It can if the output has 16-bit elements, every dimension of it is one axis, its rows begin at multiples of 16 bytes, and they
    are along m or the last axis of columns. A tile has multiples of 16 columns, contiguous ones if rows are along columns. A
    block computes whole sums (neither `split_k` nor shares of steps), and its shared memory has room for the buffers.
    """
    op, axes = plan.op, _axes(plan.op)
    if op.output.dtype not in HALVES or plan.slices > 1 or plan.shares_steps or axes is None:
        return None
    pitches = tuple(ITEM * stride for stride in op.write.strides()[:-1])
    partial = plan.register[plan.roles.m] % WARP_ROWS and plan.program.grid[plan.roles.m] > 1
    turned = axes[-1] == plan.roles.m
    if partial or any(pitch % UNIT for pitch in pitches) or not (turned or axes[-1] == plan.roles.n):
        return None
    lengths = next(_along_rows(plan) if turned else _along_columns(plan), None)
    if lengths is None:
        return None
    box = tuple(WARP_ROWS if a == plan.roles.m else lengths.get(a, 1) for a in axes)
    own = TensorMap(len(op.inputs), op.output.dtype, op.write.view, pitches, box, box[-1] * ITEM)
    whole = math.lcm(GROUP, math.prod(lengths.values()))
    several = max([n for n in range(1, MOST_COLUMNS // whole + 1) if plan.tile[1] // whole % n == 0], default=1)
    boxes = Boxes(op.output.name, own, axes, whole * several if turned else whole, turned, plan.num_consumers * WARPGROUP // 32)
    made = replace(plan, boxes=boxes)
    return made if made.shared_bytes <= plan.program.hardware.shared_per_block else None


def _axes(op: Operator) -> tuple[int, ...] | None:
    """Return the axis along each dimension of the output, outermost first; None if a dimension is not one whole axis."""
    found = []
    for size, row, offset in zip(op.write.view, op.write.coefficients, op.write.offset, strict=True):
        movers = [a for a, coefficient in enumerate(row) if coefficient]
        if len(movers) != 1 or row[movers[0]] != 1 or offset or size != op.extents[movers[0]]:
            return None
        found.append(movers[0])
    return tuple(found)


def _along_columns(plan: WgmmaPlan) -> Iterator[dict[int, int]]:
    """Yield the numbers of elements of a box along axes of columns, longest rows first, for rows along columns."""
    widths = (MOST_COLUMNS, MOST_COLUMNS // 2, GROUP)
    yield from ({plan.roles.n: width} for width in widths if plan.register[plan.roles.n] % width == 0)


def _along_rows(plan: WgmmaPlan) -> Iterator[dict[int, int]]:
    """Yield the numbers of elements of a box along axes of columns, most first, for rows along m: adjacent columns of a tile."""
    if plan.tile[1] % GROUP:
        return
    lengths = [plan.register[a] for a in plan.column_axes]
    for place, length in enumerate(lengths):
        inner = lengths[place + 1 :]
        for part in range(length, 0, -1):
            columns = part * math.prod(inner)
            if length % part == 0 and columns <= MOST_COLUMNS and columns * WARP_ROWS * ITEM % _PERIOD == 0:
                yield dict(zip(plan.column_axes, [1] * place + [part, *inner], strict=True))
