"""Prefetches of the cache lines that the next lanes read, while all rows of the current lanes are computed.

If the loop over lanes is the outer loop, all tiles of rows read the same cache lines of an operand, before the next lanes read
new ones. The operand is either packed weights, which are in no cache when a network is called, or an image that a 1x1
convolution reads in place: a few lines of every channel's plane, which hardware prefetchers do not predict. Without prefetches
the memory is idle while rows are computed, then the rows of the next lanes wait for it. So every tile prefetches a share of the
next lanes' cache lines, spread evenly over its steps.

Measured on one thread of an Intel Xeon (2 MB of L2 cache), alternating with the same program without prefetches: a convolution
of 56x56 from 256 to 64 channels takes 7 to 10 % less time, one from 144 to 24 channels takes 22 % less, and one of 112x112 from
32 to 16 takes 0 to 5 % less. With 128 or more output channels there is no gain, and an image within half of L2 loses 2 to 5 %.
BERT, whose weights fit no cache, takes 0.80 of the time, ResNet-50 0.94.

A panel that is read in blocks is prefetched block by block. With AVX2 on one core of an Intel Xeon, panels of 24 channels, whose
steps end within cache lines, are then read in 0.74 of the time by a convolution of 7x7 pixels, 512 channels, 3x3, in blocks, and
in 0.92 of the time by one of 14x14 pixels and 256 channels. Both read weights that are in no L2.

In tile registers, a panel that a single register tile reads is prefetched one page ahead. On one core of an Intel Xeon with AMX,
a convolution of 7x7 pixels from 512 to 512 channels, 3x3, in int8, then takes 0.86 of the time if its weights are not in L2.

A direct convolution with vectors over channels reads a few pixels of one channel's plane after another. If all planes exceed half
of L2, each step prefetches the pixels of a later step. On one thread of a Zen 4 a convolution of 64x64 from 256 to 256 channels,
3x3, then takes 0.97 of the time, one of 64x64 from 512 channels 0.95.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.operand import Reader, bounds, is_split
from gensor_gym.codegen.c.plan import Chunk, LoopPlan
from gensor_gym.codegen.c.text import Lines, ceil_div, linear
from gensor_gym.operators.types import ITEM_BYTES

LINE = 64
"""Size of a cache line in bytes."""
FEW_TILES, MANY_TILES = 8, 32
"""Largest number of register tiles that share the prefetches of an image, and of weights in panels, for each tap of a window.

Sharing costs time in every step.
"""
STEPS_AHEAD = 4
"""Number of channels from a step to the step whose pixels it prefetches; 2 is as fast."""
APART = 2048
"""Smallest distance in bytes of planes that hardware prefetchers do not predict: half a page, our assumption."""
TERMS_PER_LINE = 8
"""Least multiply-adds of a step per cache line that it prefetches: our assumption."""
NEAR = 4096
"""Bytes from a panel's lines that a step reads to those that it prefetches, if one register tile reads the panel."""


@dataclass(frozen=True)
class Ahead:
    """Prefetches in the micro-kernel's loop over a reduction axis.

    In each step, the next lanes read `lines` cache lines of the operand; `tiles` register tiles share the work of prefetching
    them.
    """

    operand: Operand
    axis: int
    lines: int
    tiles: int
    hint: str
    """C text of further arguments of `__builtin_prefetch`, which choose the cache level; empty for all levels."""
    apart: int
    """Elements from the lines that the first step reads to those that it prefetches."""
    size: int = 1
    """Elements of the reduction in a step: more than one in tile registers."""


def turns(plan: LoopPlan) -> int:
    """Return the number of consecutive tasks that read the same part of the vector axis.

    It is 1 if a task has several register tiles along the vector axis. The field `turn` of `struct task` counts these tasks.
    """
    if plan.vector not in plan.op.spatial or plan.moves(plan.vector):
        return 1
    return math.prod(plan.grid[a] for a in plan.op.spatial if a > plan.vector)


def asks_by_turns(plan: LoopPlan) -> bool:
    """Return whether the micro-kernel needs the field `turn` of its task to choose which cache lines to prefetch."""
    return turns(plan) > 1 and plan.splits == 1 and any(_prefetches(plan, a) for a in plan.op.reduce)


def ask_ahead(lines: Lines, reader: Reader, axis: int) -> None:
    """Write the prefetches of one step of the loop over the reduction axis `axis`, if this loop has any."""
    plan = reader.plan
    for read in () if reader.edge else plan.reads:
        inner = dict.fromkeys((a for a in plan.op.reduce if a > axis), 0)
        for distance in _pixels(plan, axis, read):
            pixel = reader.index(read, plan.rows[0], plan.chunks[0], inner)
            lines.add(f"__builtin_prefetch({read.name} + {pixel} + {distance});")
    found = None if reader.edge else _prefetches(plan, axis)
    if found is None:
        return
    operand, item = found.operand, ITEM_BYTES[found.operand.access.tensor.dtype]
    name, (begin, end) = plan.axes[found.axis], bounds(plan, found.axis)
    steps, step = (end, name) if begin == "0" else (f"({end} - {begin})", f"({name} - {begin})")
    if found.size > 1:
        steps, step = f"({steps} / {found.size})", f"{step} / {found.size}"
    for a in inner_steps(plan, found.axis) if plan.tiling else ():
        steps, step = f"{steps} * {plan.op.extents[a]}", f"({step}) * {plan.op.extents[a]} + {plan.axes[a]}"
    share = f"(({_number(plan)}) * {steps} + {step}) * {found.lines} / {found.tiles}"
    for more in range(ceil_div(found.lines, found.tiles)):
        line = f"ahead_{more}"
        lines.add(f"const unsigned long {line} = (unsigned long)({share}){f' + {more}' if more else ''};")
        # The last element of each line: in an unaligned array, the first one may be in a line that was read before.
        apart = f"{line} / {found.lines} * {operand.strides[axis]} + {line} % {found.lines} * {LINE // item}"
        place = f"{line} * {LINE // item}" if operand.packing else apart
        start = linear([(1, operand.name), (operand.strides[found.axis], begin)], found.apart + LINE // item - 1)
        lines.add(f"__builtin_prefetch({start} + {place}{found.hint});")


def ask_results(lines: Lines, reader: Reader) -> None:
    """Write prefetches, for writing, of the cache lines that a register tile stores, if results exceed half of L2.

    They are fetched while the tile is computed. Otherwise each store waits for its line, since a call of a network finds them in
    no near cache.
    """
    plan, output = reader.plan, reader.plan.output
    item, last = ITEM_BYTES[output.dtype], plan.op.spatial[-1]
    stored_once = plan.splits == 1 and not plan.is_carried and plan.shift is None and plan.tiling is None
    far = output.access.tensor.size * item > _caches(plan)["l2"] // 2
    if reader.edge or not stored_once or plan.vector_is_reduced or plan.op.body == "map" or item < 4 or not far:
        return
    width, rows = plan.tiles[0][plan.vector], plan.rows
    terms = len(rows) * len(plan.chunks) * math.prod(plan.op.extents[a] for a in plan.op.reduce)
    if output.lane_stride == 1:
        if ceil_div(width * item, LINE) * len(rows) * TERMS_PER_LINE <= terms:
            places = [_result(reader, row, at) for row in rows for at in range(0, width, LINE // item)]
            lines.add(*(f"__builtin_prefetch({output.name} + {place}, 1);" for place in places))
        return
    pixels = plan.tiles[0][last] if output.strides[last] == 1 and last != plan.vector else 1
    starts = [row for row in rows if row[last] % (LINE // item) == 0 or pixels == 1]
    if width * len(starts) * TERMS_PER_LINE <= terms:
        with lines.block(f"for (long lane = 0; lane < {width}; lane++)"):
            places = [f"{_result(reader, row, 0)} + lane * {output.lane_stride}" for row in starts]
            lines.add(*(f"__builtin_prefetch({output.name} + {place}, 1);" for place in places))


def _result(reader: Reader, row: tuple[int, ...], at: int) -> str:
    """Return the C text of the index of a row's element at lane `at`."""
    return reader.index(reader.plan.output, row, Chunk(at, 1))


def inner_steps(plan: LoopPlan, axis: int) -> list[int]:
    """Return the reduction axes inside `axis` along which tile registers take several steps."""
    taps = plan.tiling.taps if plan.tiling else -1
    return [a for a in plan.op.reduce if a > axis and plan.op.extents[a] > 1 and a != taps]


def _number(plan: LoopPlan) -> str:
    """Return the C text of this register tile's index among the tiles that read the same part of the vector axis."""
    terms = ["t->turn"] if asks_by_turns(plan) else []
    for a in _rows(plan):
        name, size = plan.axes[a], plan.largest[a]
        place = name if size == 1 else f"({name} + {size - 1}) / {size}"
        terms = [place] if not terms else [f"({' '.join(terms)}) * {_tile_count(plan, a)} + {place}"]
    return " ".join(terms) or "0"


def _pixels(plan: LoopPlan, axis: int, read: Operand) -> list[int]:
    """Return distances in elements from a step's first pixel to pixels of a later step, one for each cache line to prefetch."""
    item, packing = ITEM_BYTES[read.access.tensor.dtype], read.packing
    inner = [a for a in plan.op.reduce if a > axis and plan.op.extents[a] > 1]
    if packing is None or packing.panel >= 0 or read.lane_stride or plan.group >= 0 or not inner:
        return []
    slides = any(row[axis] and any(row[a] for a in plan.op.spatial) for row in read.access.coefficients)
    near = read.strides[axis] * item < APART or packing.size * item <= _caches(plan)["l2"] // 2
    if slides or near or plan.program.knob("prefetch"):
        return []
    sizes = {a: plan.tiles[0][a] for a in plan.op.spatial} | {a: plan.op.extents[a] for a in inner}
    spans = [1 + sum(row[a] * (size - 1) for a, size in sizes.items()) for row in read.access.coefficients]
    line = LINE // item
    columns = sorted({*range(0, spans[-1], line), spans[-1] - 1})
    places = [
        STEPS_AHEAD * read.strides[axis] + sum(i * pitch for i, pitch in zip(at, packing.pitch, strict=False)) + column
        for at in itertools.product(*map(range, spans[:-1])) for column in columns
    ]  # fmt: skip
    terms = len(plan.rows) * len(plan.chunks) * math.prod(plan.op.extents[a] for a in inner)
    return places if TERMS_PER_LINE * len(places) <= terms else []


def _prefetches(plan: LoopPlan, axis: int) -> Ahead | None:
    first = next((a for a in plan.op.reduce if plan.op.extents[a] > 1), None)
    in_vectors = plan.tiling is None and (plan.group >= 0 or plan.program.knob("prefetch"))
    if not _lanes_stay(plan) or in_vectors:
        return None
    if plan.tiling:
        last = None if first is None else [first, *inner_steps(plan, first)][-1]
        return _panels(plan, first, plan.reads[1], plan.tiling.step) if first is not None and axis == last else None
    if axis != first:
        return None
    return next(filter(None, (_panels(plan, axis, read) or _image(plan, axis, read) for read in plan.reads)), None)


def _rows(plan: LoopPlan) -> list[int]:
    """Return the axes except the vector axis along which a task has several register tiles, the innermost last."""
    return [a for a in plan.op.spatial if a != plan.vector and plan.moves(a)]


def _tile_count(plan: LoopPlan, axis: int) -> int:
    return ceil_div(min(plan.tiles[2][axis], plan.op.extents[axis]), plan.largest[axis])


def _lanes_stay(plan: LoopPlan) -> bool:
    """Return whether consecutive register tiles read the same part of the vector axis and have different rows."""
    if plan.vector not in plan.op.spatial:
        return False
    if not plan.moves(plan.vector):
        return plan.splits == 1
    if not _rows(plan):
        return True
    lanes_are_outer = plan.tiles[1][plan.vector] == plan.tiles[0][plan.vector]
    all_rows = all(plan.tiles[1][a] >= min(plan.tiles[2][a], plan.op.extents[a]) for a in _rows(plan))
    return plan.program.knob("loop_order") == 0 and (lanes_are_outer or all_rows)


def _sharing(plan: LoopPlan) -> int:
    """Return the number of consecutive register tiles that read the same part of the vector axis."""
    return turns(plan) * math.prod(_tile_count(plan, a) for a in _rows(plan))


def _panels(plan: LoopPlan, axis: int, read: Operand, size: int = 1) -> Ahead | None:
    """Return the prefetches of weights that are packed in panels, or None.

    They are useful if two panels fit in L2 but all weights take much of it.
    """
    if read.packing is None or read.packing.panel < 0 or not read.packing.shared or _moved_by_rows(plan, read):
        return None
    inner = [a for a in plan.op.reduce if a > axis]
    if any(bounds(plan, a) != ("0", str(plan.op.extents[a])) for a in inner):
        return None
    item, caches = ITEM_BYTES[read.access.tensor.dtype], _caches(plan)
    step, steps = read.strides[axis] * item * size, min(plan.tiles[1][axis], plan.op.extents[axis]) // size
    lines = step // LINE // (math.prod(plan.op.extents[a] for a in inner_steps(plan, axis)) if plan.tiling else 1)
    tiles, far = _sharing(plan), read.packing.size * item > caches["l2"] // (8 if plan.op.frozen else 2)
    many, part = MANY_TILES * math.prod(plan.op.extents[a] for a in inner), math.gcd(step, LINE)
    if not far or tiles > many or (tiles == 1 if plan.tiling is None else part < LINE):
        return None
    if tiles == 1:
        return Ahead(read, axis, lines, 1, "", NEAR // item, size)
    if steps * step > caches["l2"] // 2:
        return None
    panel = read.strides[plan.vector] * plan.tiles[0][plan.vector]
    if is_split(plan, axis) and (not plan.moves(plan.vector) or plan.tiles[1][plan.vector] == plan.tiles[0][plan.vector]):
        panel = steps * read.strides[axis]
    if part < LINE:
        lines, tiles = step // part, tiles * (LINE // part)
    return Ahead(read, axis, lines, tiles, "" if steps * step <= caches["l1"] // 2 else ", 0, 2", panel, size)


def _image(plan: LoopPlan, axis: int, read: Operand) -> Ahead | None:
    """Return the prefetches of an image that is read in place, with one channel's plane per step, or None.

    They are useful if the image exceeds half of L2.
    """
    item, caches = ITEM_BYTES[read.access.tensor.dtype], _caches(plan)
    if read.packing is not None or read.guarded or not read.lane_stride == read.strides[plan.vector] == 1:
        return None
    if _moved_by_rows(plan, read) or any(plan.op.extents[a] > 1 for a in plan.op.reduce if a > axis):
        return None
    width, steps = plan.tiles[0][plan.vector], min(plan.tiles[1][axis], plan.op.extents[axis])
    lines, tiles = ceil_div(width * item, LINE), _sharing(plan)
    fits = steps * lines * LINE <= caches["l1"] and plan.moves(plan.vector)
    far = read.strides[axis] > width and read.access.tensor.size * item > caches["l2"] // 2
    return Ahead(read, axis, lines, tiles, "", width) if fits and far and 2 <= tiles <= FEW_TILES else None


def _moved_by_rows(plan: LoopPlan, read: Operand) -> bool:
    """Return whether register tiles that differ only in their rows read different elements of an operand."""
    turning = [a for a in plan.op.spatial if a > plan.vector and plan.grid[a] > 1] if turns(plan) > 1 else []
    return any(read.strides[a] for a in (*_rows(plan), *turning))


def _caches(plan: LoopPlan) -> dict[str, int]:
    return {level.name: level.capacity for level in plan.program.hardware.memory}
