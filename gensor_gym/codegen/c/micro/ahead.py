"""Prefetches of the next lanes' cache lines during the rows of the present ones.

Where the lanes are the outer loop, tile after tile of rows reads the same lines of an operand, and then the next lanes read new
ones: weights by panels, which a network's call finds in no cache, or an image that a 1x1 convolution reads in place, a few lines
of every channel's plane, which no hardware prefetcher predicts. The memory waits while the rows are computed, and the rows while
the lines come. So every tile prefetches its share of the next lanes' lines, evenly over its steps.

Timed on one thread of an Intel Xeon (2 MB of second cache), alternately with the same program without: 256 channels of 56x56 to
64 take 7 to 10 % less, 144 to 24 22 %, 32 of 112x112 to 16 0 to 5 %; to 128 and more channels it is worth nothing, and an image
within half of that cache loses 2 to 5 %. BERT, whose weights no cache holds, takes 0.80 of the time, ResNet-50 0.94.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_gym.codegen.c.operand import Reader, bounds
from gensor_gym.codegen.c.plan import LoopPlan, Operand
from gensor_gym.codegen.c.text import Lines, ceil_div, linear
from gensor_gym.operators.types import ITEM_BYTES

LINE = 64
"""Bytes of a cache line."""
FEW_TILES, MANY_TILES = 8, 32
"""Most tiles that share the prefetches of an image, and of panels: every step pays for sharing."""


@dataclass(frozen=True)
class Ahead:
    """A prefetch in the loop over an axis: operand, lines per step, distance in elements, and number of tiles that share it."""

    operand: Operand
    axis: int
    lines: int
    tiles: int
    hint: str
    """Arguments of the prefetch: into which cache."""


def turns(plan: LoopPlan) -> int:
    """Tasks in a row that read the same lanes, which `turn` of `struct task` counts; 1 if a task has several vectors."""
    if plan.vector not in plan.op.spatial or plan.moves(plan.vector):
        return 1
    return math.prod(plan.grid[a] for a in plan.op.spatial if a > plan.vector)


def asks_by_turns(plan: LoopPlan) -> bool:
    """Whether a tile must know which of those tasks it is in."""
    return turns(plan) > 1 and plan.splits == 1 and any(_found(plan, a) for a in plan.op.reduce)


def ask_ahead(lines: Lines, reader: Reader, axis: int) -> None:
    """Emit this step's share of prefetches, if this loop over a reduce axis has them."""
    plan = reader.plan
    found = None if reader.edge else _found(plan, axis)
    if found is None:
        return
    operand, item = found.operand, ITEM_BYTES[found.operand.access.tensor.dtype]
    width, stride = plan.tiles[0][plan.vector], operand.strides[axis]
    name, (begin, end) = plan.axes[axis], bounds(plan, axis)
    steps, step = (end, name) if begin == "0" else (f"({end} - {begin})", f"({name} - {begin})")
    share = f"(({_number(plan)}) * {steps} + {step}) * {found.lines} / {found.tiles}"
    for more in range(ceil_div(found.lines, found.tiles)):
        line = f"ahead_{more}"
        lines.add(f"const unsigned long {line} = (unsigned long)({share}){f' + {more}' if more else ''};")
        # The last element of a line's worth: where the array begins inside a line, its first may be in one that is there.
        apart = f"{line} / {found.lines} * {stride} + {line} % {found.lines} * {LINE // item}"
        place = f"{line} * {LINE // item}" if stride * item == found.lines * LINE else apart
        start = linear([(1, operand.name), (stride, begin)], operand.strides[plan.vector] * width + LINE // item - 1)
        lines.add(f"__builtin_prefetch({start} + {place}{found.hint});")


def _number(plan: LoopPlan) -> str:
    """The number of this tile among those that read the same lanes."""
    terms = ["t->turn"] if asks_by_turns(plan) else []
    for a in _rows(plan):
        name, size = plan.axes[a], plan.tiles[0][a]
        place = name if size == 1 else f"({name} + {size - 1}) / {size}"
        terms = [place] if not terms else [f"({' '.join(terms)}) * {_tiles(plan, a)} + {place}"]
    return " ".join(terms) or "0"


def _found(plan: LoopPlan, axis: int) -> Ahead | None:
    """The prefetch in the loop over an axis; None if there is none."""
    first = next((a for a in plan.op.reduce if plan.op.extents[a] > 1), None)
    if axis != first or plan.group >= 0 or plan.program.knob("prefetch") or not _lanes_stay(plan):
        return None
    return next(filter(None, (_panels(plan, axis, read) or _image(plan, axis, read) for read in plan.reads)), None)


def _rows(plan: LoopPlan) -> list[int]:
    """Axes along which a task has several tiles that read the same lanes, the innermost last."""
    return [a for a in plan.op.spatial if a != plan.vector and plan.moves(a)]


def _tiles(plan: LoopPlan, axis: int) -> int:
    """Register tiles of a task along an axis."""
    return ceil_div(min(plan.tiles[2][axis], plan.op.extents[axis]), plan.tiles[0][axis])


def _lanes_stay(plan: LoopPlan) -> bool:
    """Whether tiles of rows follow one another while the lanes stay."""
    if plan.vector not in plan.op.spatial:
        return False
    if not plan.moves(plan.vector):
        return plan.splits == 1
    lanes_are_outer = plan.tiles[1][plan.vector] == plan.tiles[0][plan.vector]
    all_rows = all(plan.tiles[1][a] >= min(plan.tiles[2][a], plan.op.extents[a]) for a in _rows(plan))
    return plan.program.knob("loop_order") == 0 and (lanes_are_outer or all_rows)


def _sharing(plan: LoopPlan) -> int:
    """Tiles that read the same lanes one after another."""
    return turns(plan) * math.prod(_tiles(plan, a) for a in _rows(plan))


def _panels(plan: LoopPlan, axis: int, read: Operand) -> Ahead | None:
    """Prefetch of weights in panels, if the second-level cache holds two of them."""
    if read.packing is None or read.packing.panel < 0 or not read.packing.shared or _moved_by_rows(plan, read):
        return None
    inner = [a for a in plan.op.reduce if a > axis]
    if any(bounds(plan, a) != ("0", str(plan.op.extents[a])) for a in inner):
        return None
    item, caches = ITEM_BYTES[read.access.tensor.dtype], _caches(plan)
    step, steps = read.strides[axis] * item, min(plan.tiles[1][axis], plan.op.extents[axis])
    tiles, far = _sharing(plan), read.packing.size * item > caches["l2"] // (8 if plan.op.frozen else 2)
    if not far or step % LINE or steps * step > caches["l2"] // 2 or not 2 <= tiles <= MANY_TILES:
        return None
    return Ahead(read, axis, step // LINE, tiles, "" if steps * step <= caches["l1"] // 2 else ", 0, 2")


def _image(plan: LoopPlan, axis: int, read: Operand) -> Ahead | None:
    """An image that lanes read in place, a plane apart along the axis, and that no near cache holds."""
    item, caches = ITEM_BYTES[read.access.tensor.dtype], _caches(plan)
    if read.packing is not None or read.guarded or not read.lane_stride == read.strides[plan.vector] == 1:
        return None
    if _moved_by_rows(plan, read) or any(plan.op.extents[a] > 1 for a in plan.op.reduce if a > axis):
        return None
    width, steps = plan.tiles[0][plan.vector], min(plan.tiles[1][axis], plan.op.extents[axis])
    lines, tiles = ceil_div(width * item, LINE), _sharing(plan)
    fits = steps * lines * LINE <= caches["l1"] and plan.moves(plan.vector)
    far = read.strides[axis] > width and read.access.tensor.size * item > caches["l2"] // 2
    return Ahead(read, axis, lines, tiles, "") if fits and far and 2 <= tiles <= FEW_TILES else None


def _moved_by_rows(plan: LoopPlan, read: Operand) -> bool:
    """Whether tiles of rows that share lanes read different lines."""
    turning = [a for a in plan.op.spatial if a > plan.vector and plan.grid[a] > 1] if turns(plan) > 1 else []
    return any(read.strides[a] for a in (*_rows(plan), *turning))


def _caches(plan: LoopPlan) -> dict[str, int]:
    """Bytes by level."""
    return {level.name: level.capacity for level in plan.program.hardware.memory}
