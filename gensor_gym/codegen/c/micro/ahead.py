"""The lines of the next lanes, asked for while the rows of these are computed.

A 1x1 convolution reads a few lines of every channel's plane for each vector of pixels, tile after tile of output channels the same
ones, then the next pixels' lines: a plane apart, which no prefetcher of a processor foresees. Where the image does not stay in the
second cache and few tiles share a line, every tile asks for its share of the lines that the next pixels need, evenly over its
steps. Timed on one thread of an Intel Xeon (2 MB of second cache, one program of each): 256 channels of 56x56 to 64 take 10 % less,
144 to 24 22 %, 32 of 112x112 to 16 5 %; to 128 and more channels it is worth nothing, and within half of that cache it costs 2 to
5 %.
"""

from __future__ import annotations

from gensor_gym.codegen.c.operand import Reader, bounds
from gensor_gym.codegen.c.plan import LoopPlan, Operand
from gensor_gym.codegen.c.text import Lines, ceil_div, linear
from gensor_gym.operators.types import ITEM_BYTES

LINE = 64
"""Bytes of a cache line."""
MOST_TILES = 8
"""That may share the asking: each of their steps pays for it, whatever there is to ask for."""


def ask_ahead(lines: Lines, reader: Reader, axis: int) -> None:
    """In the loop over `axis`, the only one of a reduction: ask for this step's share of what the next lanes read."""
    plan = reader.plan
    rows = _shared_axis(plan)
    operand = None if rows is None or reader.edge else _far(plan, axis)
    if rows is None or operand is None:
        return
    item = ITEM_BYTES[operand.access.tensor.dtype]
    tiles, width, stride = _tiles(plan, rows), plan.tiles[0][plan.vector], operand.strides[axis]
    count = ceil_div(width * item, LINE)
    name, (begin, end) = plan.axes[axis], bounds(plan, axis)
    steps, step = (end, name) if begin == "0" else (f"({end} - {begin})", f"({name} - {begin})")
    share = f"({plan.axes[rows]} / {plan.tiles[0][rows]} * {steps} + {step}) * {count} / {tiles}"
    for more in range(ceil_div(count, tiles)):
        line = f"ahead_{more}"
        lines.add(f"const unsigned long {line} = (unsigned long)({share}){f' + {more}' if more else ''};")
        # The last element of a line's worth: where the array begins inside a line, its first may be in one that is there.
        place = f"{line} / {count} * {stride} + {line} % {count} * {LINE // item}"
        start = linear([(1, operand.name), (stride, begin)], width + LINE // item - 1)
        lines.add(f"__builtin_prefetch({start} + {place});")


def _shared_axis(plan: LoopPlan) -> int | None:
    """The axis whose tiles follow one another while the lanes stay, if there are several and not too many; else None."""
    moving = [a for a in plan.op.spatial if a != plan.vector and plan.moves(a)]
    if len(moving) != 1 or not 2 <= _tiles(plan, moving[0]) <= MOST_TILES or plan.program.knob("loop_order"):
        return None
    lanes_are_outer = plan.tiles[1][plan.vector] == plan.tiles[0][plan.vector]
    all_rows = plan.tiles[1][moving[0]] >= min(plan.tiles[2][moving[0]], plan.op.extents[moving[0]])
    moves = plan.vector in plan.op.spatial and plan.moves(plan.vector)
    return moving[0] if moves and (lanes_are_outer or all_rows) else None


def _tiles(plan: LoopPlan, axis: int) -> int:
    """Register tiles of a task along an axis."""
    return ceil_div(min(plan.tiles[2][axis], plan.op.extents[axis]), plan.tiles[0][axis])


def _far(plan: LoopPlan, axis: int) -> Operand | None:
    """The operand that lanes read where it lies, a plane apart along `axis`, and that stays in no near cache; else None."""
    if plan.group >= 0 or plan.program.knob("prefetch"):
        return None
    caches = {level.name: level.capacity for level in plan.program.hardware.memory}
    steps, width = min(plan.tiles[1][axis], plan.op.extents[axis]), plan.tiles[0][plan.vector]
    for read in plan.reads:
        item = ITEM_BYTES[read.access.tensor.dtype]
        in_place = read.packing is None and not read.guarded and read.lane_stride == read.strides[plan.vector] == 1
        by_lanes = not any(read.strides[a] and plan.moves(a) for a in plan.op.spatial if a != plan.vector)
        apart = read.strides[axis] > width and steps * ceil_div(width * item, LINE) * LINE <= caches["l1"]
        if in_place and by_lanes and apart and read.access.tensor.size * item > caches["l2"] // 2:
            return read
    return None
