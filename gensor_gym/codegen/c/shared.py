"""Packed copies of operands that serve several tasks. All threads pack them together, once, before the tasks begin."""

from __future__ import annotations

import math
from dataclasses import replace

from gensor_gym.codegen.c.layout.copies import whole_tiles
from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro.shift import plane_call, plane_function
from gensor_gym.codegen.c.operand import task_start
from gensor_gym.codegen.c.pack import pack_call, pack_function
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.text import Lines, add, ceil_div, linear, round_up
from gensor_gym.operators.traits import weights

ITEMS = 16
"""Largest number of pieces into which the copy of an operand is cut, so that threads can share the work."""


def shared_reads(plan: LoopPlan) -> list[Operand]:
    """Return the operands that are packed once for all tasks."""
    return [read for read in plan.reads if read.packing is not None and read.packing.shared]


def shared_start(plan: LoopPlan, operand: Operand) -> str:
    """Return the C text of the offset in a shared copy at which a task begins to read."""
    return linear([(operand.strides[a], task_start(plan, a)) for a in range(len(plan.axes))])


def shared_functions(plan: LoopPlan) -> list[str]:
    """Return C functions that pack the operands that all tasks share.

    There is one for a piece of each operand, and `share`, which packs piece `index` counted over all operands.
    """
    reads = shared_reads(plan)
    if not reads:
        return []
    pieces = [_pieces(plan, read) for read in reads]
    parts = [_pack(plan, read) for read in reads]
    lines = Lines()
    lines.add("/* One piece of what all tasks share. */")
    with lines.block("static void share(void *context, long index, int thread)"):
        lines.add("const struct call *const call = context;", "(void)thread;")
        first = 0
        for read, count in zip(reads, pieces, strict=True):
            more = read is not reads[-1]
            if first:
                lines.add(f"index -= {first};")
            if more:
                with lines.block(f"if (index < {count})"):
                    _piece(lines, plan, read)
                    lines.add("return;")
            else:
                _piece(lines, plan, read)
            first = count
    return [*parts, str(lines)]


def has_prepacked(plan: LoopPlan) -> bool:
    """Return whether the last operand that all tasks share is the weights, so that later calls need not pack them again."""
    reads = shared_reads(plan)
    return bool(reads) and reads[-1].access is weights(plan.op)


def shared_call(plan: LoopPlan, prepacked: bool = False) -> list[str]:
    """Return C statements that pack all shared operands.

    If `prepacked`, the last operand is omitted, because an earlier call has packed it.
    """
    reads = shared_reads(plan)[: -1 if prepacked else None]
    return [f"team.parallel(&team, share, &call, {sum(_pieces(plan, read) for read in reads)});"] if reads else []


def weights_function(plan: LoopPlan) -> str:
    """Return the C function `share_weights`, which packs piece `index` of the last shared operand, the weights."""
    before = sum(_pieces(plan, read) for read in shared_reads(plan)[:-1])
    lines = Lines()
    with lines.block("static void share_weights(void *context, long index, int thread)"):
        lines.add(f"share(context, {add('index', str(before))}, thread);")
    return str(lines)


def weights_call(plan: LoopPlan) -> str:
    """Return the C statement that packs all pieces of the weights in parallel."""
    return f"runtime->parallel(runtime, share_weights, &call, {_pieces(plan, shared_reads(plan)[-1])});"


def _is_plane(plan: LoopPlan, read: Operand) -> bool:
    return plan.shift is not None and read is plan.reads[0]


def _pieces(plan: LoopPlan, read: Operand) -> int:
    assert read.packing is not None
    if _is_plane(plan, read):
        return math.prod(read.packing.shape[:2])
    return math.prod(_slice_plan(plan, read).grid)


def _pack(plan: LoopPlan, read: Operand) -> str:
    if _is_plane(plan, read):
        return plane_function(plan, read)
    piece = _slice_plan(plan, read)
    return pack_function(piece, _slice(piece, read))


def _piece(lines: Lines, plan: LoopPlan, read: Operand) -> None:
    assert read.packing is not None
    target = f"call->shared_{read.name}"
    if _is_plane(plan, read):
        channels = read.packing.shape[1]
        steps = [f"index / {channels}", f"index % {channels}"]
        lines.add(plane_call(read, ["0", "0"], "0", target, steps))
        return
    piece = _slice_plan(plan, read)
    axis = next((a for a in range(len(plan.axes)) if piece.grid[a] > 1), None)
    lines.add(f"{read.c_type} *packed_{read.name} = {target};")
    if axis is None:
        lines.add("(void)index;")
    else:
        name = plan.axes[axis]
        lines.add(f"const long {name}_task = index * {piece.tiles[2][axis]};")
        lines.add(f"packed_{read.name} += {shared_start(piece, read)};")
        if piece.constant_count(axis) is None:
            rest = f"{plan.op.extents[axis]} - {name}_task"
            lines.add(f"const struct {{ long {name}_count; }} t = {{least({piece.tiles[2][axis]}, {rest})}};")
    lines.add(pack_call(piece, _slice(piece, read)))


def _slice(piece: LoopPlan, read: Operand) -> Operand:
    """Return the operand whose box is one piece of the shared copy, with the pitches of the whole copy."""
    assert read.packing is not None
    shape = tuple(1 + sum(c * (t - 1) for c, t in zip(row, piece.tiles[2], strict=True)) for row in read.access.coefficients)
    return replace(read, packing=replace(read.packing, shape=shape))


def _slice_plan(plan: LoopPlan, read: Operand) -> LoopPlan:
    axis = _cut_axis(plan, read)
    tiles = list(whole_tiles(plan.op.extents, plan.tiles[0], plan.op.reduce, plan.vector, plan.group, plan.step_of_group))
    if axis is not None:
        inner = plan.step_of_group if axis == plan.group else plan.step(axis)
        unit = plan.tiles[0][axis] if axis in plan.op.spatial or axis == plan.vector else inner
        # Pixels are copied with all channels of a thread: of 56x56 pixels, 64 channels, copies of four channels took 0.22 ms, so
        # 0.06 to 0.1 (AVX2 on one core of an Intel Xeon).
        items = min(plan.threads, ITEMS) if read.access.coefficients[-1][axis] == 1 and axis != plan.vector else ITEMS
        tiles[axis] = round_up(ceil_div(tiles[axis], items), unit)
    return replace(plan, tiles=(*plan.tiles[:2], tuple(tiles)))


def _cut_axis(plan: LoopPlan, read: Operand) -> int | None:
    """Return the axis along which a shared copy is cut into pieces for threads; None without such an axis.

    With panels it is the vector axis, else the axis of the outermost dimension that only one axis indexes. The channels of an
    image that has them last are not cut, because pixels are copied with all of them.
    """
    assert read.packing is not None
    if read.packing.panel >= 0:
        return plan.vector
    for row in read.access.coefficients:
        moving = [a for a, c in enumerate(row) if c and plan.op.extents[a] > 1]
        if len(moving) == 1 and not (plan.groups_channels and plan.reads_last and moving[0] == plan.group):
            return moving[0]
    return None
