"""Layouts of packed copies: panels or boxes of an operand, planes of the input of a shifted matrix product."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gensor_gym.codegen.c.fuse import Shift, copy_limit
from gensor_gym.codegen.c.group import GROUP, group_dimension
from gensor_gym.codegen.c.layout.operands import Operand, Packing
from gensor_gym.codegen.c.text import ceil_div, round_up
from gensor_gym.codegen.program import Program
from gensor_gym.graph.structure import serves_all
from gensor_gym.operators.traits import weights
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator


@dataclass(frozen=True)
class Layout:
    """How a packed copy is laid out: for lanes along the axis `vector` and groups along the axis `group`, or -1.

    `block` is the number of adjacent elements along `group`. In panels, groups of `together` elements along this axis follow one
    another for each tap of a window. If `dense`, lines of pixels follow one another.
    """

    vector: int
    group: int
    block: int
    together: int
    dense: bool


def shifted(op: Operator, tiles: tuple[tuple[int, ...], ...], access: Access, name: str, shift: Shift) -> Operand:
    """Return the copied input of a shifted matrix product as an operand of the micro-kernel."""
    task = whole_tiles(op.extents, tiles[0], op.reduce, shift.axis) if shift.shared else tiles[2]
    shape = [1 + sum(c * (t - 1) for c, t in zip(row, task, strict=True)) for row in access.coefficients[:-1]]
    pitch = (shape[1] * shift.plane, shift.plane, 1)
    strides = [sum(pitch[d] * row[a] for d, row in enumerate(access.coefficients)) for a in range(len(task))]
    tables = []
    for axis, taps in zip(op.reduce[-2:], shift.taps, strict=True):
        step = taps[1] if len(taps) > 1 else 0
        if all(tap == i * step for i, tap in enumerate(taps)):
            strides[axis] = step
        else:
            tables.append(axis)
    padded = tuple(map(round_up, op.extents, task))  # the box of the last task has the full size, too
    leaves = tuple(access.span(d, padded)[1] >= access.view[d] for d in range(2))
    size = shape[0] * pitch[0] + tiles[0][shift.axis]
    packing = Packing(-1, (*shape, shift.plane), pitch, size, leaves, shift.shared)
    return Operand(name, access, access.tensor.dtype, tuple(strides), 1, (), packing, tuple(tables))


def packed(
    program: Program, tiles: tuple[tuple[int, ...], ...], layout: Layout, access: Access, name: str
) -> Operand:
    """Return a packed operand.

    All tasks share one copy if it can serve them and is not too large; else each task packs a copy.
    Constant weights are packed once for all calls, so their copy may have any size.
    """
    op, task, vector, group = program.operator, tiles[2], layout.vector, layout.group
    pixels = program.knob("convolution") == 1 and access.coefficients[-1][op.reduce[0]] == 1
    if serves_all(op, access, task):
        whole = whole_tiles(op.extents, tiles[0], op.reduce, vector, group, layout.block)
        found = _copied(tiles[0][vector], whole, layout, access, name, pixels)
        assert found.packing is not None
        fits = found.packing.size * ITEM_BYTES[access.tensor.dtype] <= copy_limit(program.hardware)
        if fits or (op.frozen and access is weights(op)):
            return replace(found, packing=replace(found.packing, shared=True))
    return _copied(tiles[0][vector], task, layout, access, name, pixels)


def _copied(width: int, task: tuple[int, ...], layout: Layout, access: Access, name: str, pixels: bool) -> Operand:
    """Return an operand that is packed for one tile of sizes `task`. `pixels` says that it is an image with channels last.

    It is cut into panels as wide as the register tile (`width`) if possible, else packed as one box. Panels of int8 groups also
    contain the accumulators' initial values. Neighbours along dimensions inside the grouped one are a whole number
    of groups apart.
    """
    shape = tuple(1 + sum(c * (t - 1) for c, t in zip(row, task, strict=True)) for row in access.coefficients)
    vector, group = layout.vector, layout.group
    size_of_group = layout.block if group >= 0 else 1
    panel = _panel_dimension(access, task, vector)
    dimensions = range(len(shape))
    grouped = group_dimension(access, group) if group >= 0 else len(shape)
    pitch = [0] * len(shape)
    size = 1
    if panel >= 0:
        size = width
        for d in reversed([d for d in dimensions if d != panel]):
            rows = round_up(shape[d], size_of_group) if d == grouped and size_of_group != GROUP else shape[d]
            starts = GROUP if d == grouped and size_of_group == GROUP else 0
            pitch[d], size = size, size * (rows + starts)
        pitch[panel], size = size, size * ceil_div(shape[panel], width)
    else:
        row = len(shape) - (2 if pixels else 1)  # neighbouring pixels with all their channels are copied at once
        for d in reversed(dimensions):
            pitch[d] = size
            item = ITEM_BYTES[access.tensor.dtype] * (size_of_group if d > grouped else 1)
            size = size * shape[d] if d != row or layout.dense else _row_pitch(size * shape[d], item)
    inner = layout.together if panel >= 0 else size_of_group
    pitch = [p * inner if d > grouped and d != panel else p for d, p in enumerate(pitch)]
    strides = [
        sum(pitch[d] * access.coefficients[d][a] for d in dimensions if not (a == vector and d == panel))
        for a in range(len(task))
    ]
    lane_stride = strides[vector]
    if panel >= 0:
        strides[vector], lane_stride = pitch[panel] // width, size_of_group
    packing = Packing(panel, shape, tuple(pitch), size)
    return Operand(name, access, access.tensor.dtype, tuple(strides), lane_stride, (), packing)


def _panel_dimension(access: Access, task: tuple[int, ...], vector: int) -> int:
    """Return the dimension that only the vector axis indexes within a task tile, with stride one; -1 without such a dimension."""
    moving = [[a for a, c in enumerate(row) if c and (task[a] > 1 or a == vector)] for row in access.coefficients]
    touched = [d for d, axes in enumerate(moving) if vector in axes]
    if len(touched) == 1 and moving[touched[0]] == [vector] and access.coefficients[touched[0]][vector] == 1:
        return touched[0]
    return -1


def whole_tiles(
    extents: tuple[int, ...], register: tuple[int, ...], reduce: tuple[int, ...], vector: int, group: int = -1, size: int = 1
) -> tuple[int, ...]:
    """Return the sizes of a tile that covers the whole operator, one for each axis.

    Sizes along spatial axes and `vector` are rounded up to multiples of the register tile, the size along `group` (-1 for no
    axis) to a multiple of `size`.
    """
    steps = [1 if a in reduce and a != vector else step for a, step in enumerate(register)]
    if group >= 0:
        steps[group] = size
    return tuple(round_up(extent, step) for extent, step in zip(extents, steps, strict=True))


def _row_pitch(length: int, item: int) -> int:
    """Return the distance in elements between packed rows.

    It is an odd number of cache lines, so that rows spread over the cache's sets.
    """
    if length == 1:
        return 1
    line = 64 // item
    lines = ceil_div(length, line)
    return length if lines == 1 else (lines + 1 - lines % 2) * line
