"""Shifted matrix product (knob `convolution=2`): a convolution whose rows and columns of output pixels become one axis.

If rows of the input have a common pitch, every window element (r, s) reads the same vector of pixels at a constant shift:
output[k, pixel] = sum of w[k, c, r, s] * x[c, pixel + shift(r) + shift(s)]. The input is copied with its padding. With a stride
above 1, the copy has one part for each remainder of a window offset by the stride, so that pixels of adjacent outputs are
adjacent.

If the pitch is longer than a row of the output, pixels in the gap are computed but not stored. A 1x1 window of stride 1 without
padding needs neither copy nor gap. The tile size along the fused axis is the product of the tile sizes along rows and columns.
A task computes whole rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gensor_gym.codegen.c.text import ceil_div, round_up
from gensor_gym.codegen.program import Program
from gensor_gym.graph.structure import needs_copy
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Access, Axis, Operator, Stage


@dataclass(frozen=True)
class Shift:
    """Layout of the copied input of a shifted matrix product (a convolution computed as one product for each window element).

    A plane (one image and channel) has one part for each pair of remainders (h, w) in `phases`. A part of `part` elements
    contains `rows` rows, `pitch` elements apart, then padding. `taps` holds the shift in elements of every window row and of
    every window column. The output has `lines` rows of `columns` pixels. `shared` means that one copy serves all tasks.
    """

    axis: int
    rows: int
    pitch: int
    phases: tuple[tuple[int, ...], tuple[int, ...]]
    part: int
    plane: int
    taps: tuple[tuple[int, ...], tuple[int, ...]]
    stride: tuple[int, int]
    padding: tuple[int, int]
    columns: int
    lines: int
    shared: bool


def fuse(program: Program) -> tuple[Program, Shift | None]:
    """Turn a convolution into a shifted matrix product, whose rows and columns of output pixels are one axis `pixel`.

    Return (new program, layout of the copied input); the layout is None if nothing is copied.
    """
    op = program.operator
    p, q = op.spatial[-2:]
    shift = _shift(program) if needs_copy(op) else None
    pixels = op.extents[p] * op.extents[q] if shift is None else (op.extents[p] - 1) * shift.pitch + op.extents[q]
    axes = (*op.axes[:p], Axis("pixel", pixels, "spatial"), *op.axes[q + 1 :])
    reads = (_joined(op.reads[0], p, shift), _joined(op.reads[1], p))
    stages = tuple(Stage(s.name, None if s.access is None else _joined(s.access, p)) for s in op.epilogue)
    fused = replace(op, axes=axes, reads=reads, write=_joined(op.write, p), epilogue=stages)
    tiles = tuple((*level[:p], level[p] * level[q], *level[q + 1 :]) for level in program.tiles)
    if shift is not None:
        tiles = _whole_rows(fused, tiles, program.tiles[2][p], shift, program.hardware.lanes)
    return replace(program, operator=fused, tiles=tiles, vthread=(1,) * len(axes)), shift


def _shift(program: Program) -> Shift:
    op = program.operator
    repeated = program.tiles[2][op.channel_axis] < op.extents[op.channel_axis]
    layout = _layout(program, True)
    planes = math.prod(op.reads[0].view[:2])
    return layout if repeated and planes * layout.plane * 4 <= copy_limit(program.hardware) else _layout(program, False)


def copy_limit(hardware: Hardware) -> int:
    """Return the largest size in bytes of a copy that all tasks share.

    It is the capacity of L3 or, without L3, four times that of L2.
    """
    sizes = {level.name: level.capacity for level in hardware.memory}
    return sizes.get("l3") or 4 * sizes["l2"]


def _layout(program: Program, shared: bool) -> Shift:
    op, image = program.operator, program.operator.reads[0]
    (p, q), (r, s) = op.spatial[-2:], op.reduce[-2:]
    stride = (image.coefficients[-2][p], image.coefficients[-1][q])
    steps = (image.coefficients[-2][r], image.coefficients[-1][s])
    padding = (-image.offset[-2], -image.offset[-1])
    (tall, downs), (wide, rights) = (_phases(op.extents[a], steps[i], stride[i]) for i, a in enumerate((r, s)))
    lines, columns = op.extents[p], op.extents[q]
    needed = columns + max(place for _, place in rights)
    pitch = needed
    if stride[1] == 1:  # zeros at the end of a row serve as zeros at the start of the next row
        pitch = max(columns, min(needed, padding[1] + image.view[-1]))
    rows = (lines if shared else min(program.tiles[2][p], lines)) + max(place for _, place in downs)
    part = rows * pitch + needed - pitch
    item = 16  # float32 elements of a cache line; with an odd number of lines, planes spread over the cache's sets
    plane = (ceil_div(part * len(tall) * len(wide), item) | 1) * item
    taps = (
        tuple(phase * len(wide) * part + place * pitch for phase, place in downs),
        tuple(phase * part + place for phase, place in rights),
    )
    return Shift(p, rows, pitch, (tall, wide), part, plane, taps, stride, padding, columns, lines, shared)


def _phases(extent: int, step: int, stride: int) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Divide the offsets of a window's elements by the stride.

    Return (distinct remainders, (index of the remainder, quotient) of each window element).
    """
    found = tuple(dict.fromkeys(i * step % stride for i in range(extent)))
    return found, [(found.index(i * step % stride), i * step // stride) for i in range(extent)]


def _joined(access: Access, p: int, shift: Shift | None = None) -> Access:
    """Return the access with one pixel axis in place of rows and columns.

    The two innermost dimensions become one if pixels index them. `p` is the axis of pixel rows.
    """

    def axes(row: tuple[int, ...], pixel: int) -> tuple[int, ...]:
        return (*row[:p], pixel, *row[p + 2 :])

    rows = access.coefficients
    if not any(row[p] or row[p + 1] for row in rows):
        return replace(access, coefficients=tuple(axes(row, 0) for row in rows))
    outer = tuple(axes(row, 0) for row in rows[:-2])
    inner = tuple(int(a == p) for a in range(len(rows[0]) - 1))
    view = (*access.view[:-2], access.view[-2] * access.view[-1])
    if shift is not None:
        view = (*access.view[:-2], shift.plane)
    return Access(access.tensor, view, (*outer, inner), (0,) * len(view))


def _whole_rows(
    op: Operator, tiles: tuple[tuple[int, ...], ...], rows: int, shift: Shift, lanes: int
) -> tuple[tuple[int, ...], ...]:
    register, l1, task = (list(level) for level in tiles)
    axis = shift.axis
    task[axis] = min(rows, shift.lines) * shift.pitch
    register[axis] = min(register[axis], round_up(min(task[axis], op.extents[axis]), lanes))
    l1[axis] = max(register[axis], l1[axis] // register[axis] * register[axis])
    for a in op.reduce:
        l1[a] = task[a] = op.extents[a]
    return tuple(register), tuple(l1), tuple(task)
