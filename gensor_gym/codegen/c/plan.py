"""The plan of a CPU program's C code, made before any code is written: tiles, vectors, packed operands."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gensor_gym.codegen.c.fuse import Shift, copy_limit, fuse
from gensor_gym.codegen.c.group import GROUP, GROUPS, group_axis, group_dimension, grouped_tiles, widened_tiles
from gensor_gym.codegen.c.text import ceil_div, identifiers, round_up
from gensor_gym.codegen.program import Program
from gensor_gym.graph.structure import serves_all, vector_axis
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

C_TYPES = {"float32": "float", "int8": "int8_t", "int32": "int32_t", "bfloat16": "uint16_t", "float16": "uint16_t"}
DTYPES = ("float32", "int8", "bfloat16", "float16")
ENDINGS = {"int8": "_narrow", "bfloat16": "_bfloat", "float16": "_half"}
"""Type in memory -> ending of the names of helpers that convert it to and from the accumulators' type."""
HALVES = ("bfloat16", "float16")
"""Data types of 16 bits, whose accumulators are float32; kernels read and write their bits."""


@dataclass(frozen=True)
class Chunk:
    """A vector of the register tile's width: `width` lanes, a power of two, from lane `offset` on."""

    offset: int
    width: int


@dataclass(frozen=True)
class Packing:
    """Layout of a packed operand.

    `panel` is the dimension that is cut into panels as wide as the register tile, or -1 for a plain box. `shape` is the
    task tile's box. `pitch[d]` is the distance in elements of neighbours along its dimension d (along `panel`: of whole
    panels). `size` is the buffer's number of elements. `leaves[d]` says that the box can extend outside the view,
    `shared` that one copy of the whole tensor serves all tasks.
    """

    panel: int
    shape: tuple[int, ...]  # [D]
    pitch: tuple[int, ...]  # [D]
    size: int
    leaves: tuple[bool, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class Operand:
    """A tensor as the micro-kernel accesses it, in place or packed.

    `dtype` is the type in memory; partial outputs have that of the accumulators. `strides[a]` is the distance in elements for a
    step of one along axis a, `lane_stride` the distance of adjacent lanes of a vector (they differ in panels). `guarded` lists
    dimensions whose index can be outside the view. `tables` lists axes without a constant stride, whose offsets are in a table.
    """

    name: str
    access: Access
    dtype: str
    strides: tuple[int, ...]  # [A]
    lane_stride: int
    guarded: tuple[int, ...]
    packing: Packing | None = None
    tables: tuple[int, ...] = ()

    @property
    def c_type(self) -> str:
        """C type of an element in memory."""
        return C_TYPES[self.dtype]

    @property
    def ending(self) -> str:
        """Ending of the names of helpers that load and store its elements; empty if they need no conversion."""
        return ENDINGS.get(self.dtype, "")


@dataclass(frozen=True)
class LoopPlan:
    """All that the printers need to know about one kernel."""

    program: Program
    axes: tuple[str, ...]  # [A] identifiers
    tiles: tuple[tuple[int, ...], ...]  # [3, A]
    vector: int
    chunks: tuple[Chunk, ...]
    reads: tuple[Operand, ...]
    stages: tuple[Operand | None, ...]
    output: Operand
    splits: int
    threads: int
    shift: Shift | None = None
    widest: int = 0
    """Width of the whole register tile, if this plan has a narrower tile for the end of the vector axis; else 0."""
    group: int = -1
    """Reduce axis whose elements are multiplied in groups (`c/micro/dot.py`, `c/micro/along.py`), or -1."""

    @property
    def op(self) -> Operator:
        """The operator."""
        return self.program.operator

    @property
    def vector_is_reduced(self) -> bool:
        """Whether the vector axis is a reduce axis, so that lanes are partial sums, added up at the end."""
        return self.vector in self.op.reduce

    @property
    def group_size(self) -> int:
        """Number of elements of a group: 4 of int8, 2 of bfloat16; 1 without groups."""
        return GROUPS[self.op.dtype] if self.group >= 0 else 1

    @property
    def groups_bytes(self) -> bool:
        """Whether groups are of int8, one operand unsigned, so that sums have an excess (`c/micro/dot.py`)."""
        return self.group_size == GROUP

    @property
    def has_starts(self) -> bool:
        """Whether panels end with the accumulators' initial values."""
        return self.groups_bytes and not self.groups_lanes

    @property
    def groups_lanes(self) -> bool:
        """Whether groups run along the vector axis: a lane multiplies adjacent elements of the reduction."""
        return self.group == self.vector

    @property
    def groups_channels(self) -> bool:
        """Whether copies store a group's channels of a pixel or of a filter's tap adjacently (`c/channels.py`)."""
        return self.group >= 0 and not self.groups_lanes and not self.op.reads[0].coefficients[-1][self.group]

    def group_dimension(self, operand: Operand) -> int:
        """The dimension of an operand whose index the axis of groups moves."""
        return group_dimension(operand.access, self.group)

    @property
    def accumulator(self) -> str:
        """C type of accumulators, and of partial outputs."""
        return C_TYPES[self.op.accumulator]

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of task tiles along spatial axes and of reduce blocks along reduce axes, [A]."""
        return tuple(ceil_div(n, t) for n, t in zip(self.op.extents, self.tiles[2], strict=True))

    @property
    def reduce_blocks(self) -> int:
        """Number of reduce blocks of a task tile, over all chunks of the reduction."""
        return math.prod(self.grid[a] for a in self.op.reduce)

    @property
    def tasks(self) -> int:
        """Number of tasks of the parallel loop."""
        return self.splits * math.prod(self.grid[a] for a in self.op.spatial)

    @property
    def is_carried(self) -> bool:
        """Whether partial sums are stored in the output and loaded again, since a tile's reduction has several blocks."""
        inner = any(self.tiles[1][a] < min(self.tiles[2][a], self.op.extents[a]) for a in self.op.reduce)
        return inner or self.reduce_blocks > self.splits

    def constant_count(self, axis: int) -> int | None:
        """Number of valid elements of a task tile along an axis, if it is equal for all task tiles; else None."""
        extent, tile = self.op.extents[axis], self.tiles[2][axis]
        if extent <= tile:
            return extent
        return tile if extent % tile == 0 else None

    def step(self, axis: int) -> int:
        """Number of elements along a reduce axis that one step of the micro-kernel processes."""
        return self.tiles[0][axis] if axis == self.vector else self.group_size if axis == self.group else 1

    def moves(self, axis: int) -> bool:
        """Whether a task contains several register tiles along a spatial axis."""
        step = self.widest if self.widest and axis == self.vector else self.tiles[0][axis]
        return self.tiles[2][axis] > step

    def overhangs(self, axis: int) -> bool:
        """Whether some register tile extends past the end of an axis."""
        register, task, extent = self.tiles[0][axis], self.tiles[2][axis], self.op.extents[axis]
        if self.widest and axis == self.vector:  # a narrow tile begins at a multiple of the whole tile's width
            return any(count % self.widest not in (0, register) for count in (min(task, extent), extent % task))
        return (extent % register != 0 or (extent > task and task % register != 0)) and not self.moves_back(axis)

    def moves_back(self, axis: int) -> bool:
        """Whether a task's last register tile starts earlier to stay inside the axis, and computes some elements twice.

        This is impossible if partial sums are stored in the output, or along lanes that are read from panels or from a
        shifted product's copy, where tiles start at multiples of the width. Such lanes end with a narrower tile.
        """
        size, extent, task = self.tiles[0][axis], self.op.extents[axis], self.tiles[2][axis]
        if axis in self.op.reduce or self.is_carried or extent % size == 0 or (extent % task or size) < size:
            return False
        return axis != self.vector or not (self.widest or self.copies_lanes)

    @property
    def copies_lanes(self) -> bool:
        """Whether lanes are read from panels or from the copy of a shifted product."""
        return self.shift is not None or any(read.packing and read.packing.panel >= 0 for read in self.reads)

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """Rows of accumulators in the register tile: each row's index along every axis (0 along vector and reduce axes)."""
        sizes = [self.tiles[0][a] if a in self.op.spatial and a != self.vector else 1 for a in range(len(self.op.axes))]
        positions: list[tuple[int, ...]] = [()]
        for size in sizes:
            positions = [row + (i,) for row in positions for i in range(size)]
        return tuple(positions)


def make_plan(program: Program) -> LoopPlan:
    """The plan of a program; ValueError for a data type that C does not support.

    Constant weights, if packed, are packed once for all tasks, even if there is only one task.
    """
    _check(program)
    op, convolution = program.operator, program.knob("convolution")
    vector, shift = vector_axis(op, convolution), None
    if convolution == 2:
        program, shift = fuse(program)
        op = program.operator
        vector = op.spatial[-1]
    packs = [program.knob("pack_a") == 1, program.knob("pack_b") == 1 or convolution == 1]
    group = group_axis(op, vector, packs[: len(op.reads)])
    size = GROUPS[op.dtype] if group >= 0 else 1
    whole = [op.frozen and group < 0 and serves_all(op, read, program.tiles[2]) for read in op.reads]
    blockwise = any(pack and not one for pack, one in zip(packs, whole, strict=False))
    tiles, splits = _effective_tiles(program, vector, group, any(packs[: len(op.reads)]), blockwise)
    names = identifiers([t.name for t in (*op.inputs, op.output)])
    axes = identifiers([axis.name for axis in op.axes], names)

    def operand(read: Access, name: str, pack: bool) -> Operand:
        """The operand of a read: shifted, packed or in place."""
        if shift is not None and read is op.reads[0]:
            return _shifted(op, tiles, read, name, shift)
        if pack:
            return _packed(program, tiles, vector, group, read, name)
        plain = _plain(op, vector, read, name)
        return replace(plain, lane_stride=size) if group == vector else plain

    reads = tuple(operand(*three) for three in zip(op.reads, names, packs, strict=False))
    extra = iter(names[len(op.reads) :])
    stages = tuple(None if s.access is None else _plain(op, vector, s.access, next(extra), shift) for s in op.epilogue)
    output = _plain(op, vector, op.write, names[-1], shift)
    if splits > 1:
        output = replace(output, dtype=op.accumulator)
    chunks = vector_chunks(tiles[0][vector] // (size if group == vector else 1), program.hardware.lanes)
    threads = max(1, program.hardware.units)
    return LoopPlan(
        program=program, axes=axes, tiles=tiles, vector=vector, chunks=chunks, reads=reads, stages=stages, output=output,
        splits=splits, threads=threads, shift=shift, group=group,
    )  # fmt: skip


def _check(program: Program) -> None:
    """Check that C can be generated for the program's data type and hardware; ValueError if not."""
    if program.operator.dtype not in DTYPES:
        raise ValueError(f"C kernels take dtype {', '.join(DTYPES[:-1])} or {DTYPES[-1]}, got {program.operator.dtype!r}")
    if program.hardware.kind != "cpu":
        raise ValueError(f"C is generated for hardware of kind 'cpu', got {program.hardware.name!r} of kind 'gpu'")


def vector_chunks(width: int, lanes: int) -> tuple[Chunk, ...]:
    """Split `width` lanes into vectors of `lanes` lanes, then into smaller powers of two."""
    chunks, offset, size = [], 0, lanes
    while offset < width:
        if size <= width - offset:
            chunks.append(Chunk(offset, size))
            offset += size
        else:
            size //= 2
    return tuple(chunks)


def _effective_tiles(
    program: Program, vector: int, group: int, packed: bool, blockwise: bool
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """(tiles clipped to the extents, number of chunks of the reduction).

    Reduce blocks are merged so that accumulators stay in registers: within a block if an L1 tile is one register tile, and over
    the whole reduction if a task tile is one register tile and nothing is packed block by block (`blockwise`). Blocks whose
    partial sums an output of 16 bits would have to hold are merged too.
    """
    op, lanes = program.operator, program.hardware.lanes
    columns = [_clipped(op, program.tiles, a, lanes if a == vector else 1, packed) for a in range(len(op.axes))]
    if group >= 0:
        size = GROUPS[op.dtype]
        columns[group] = (widened_tiles if group == vector else grouped_tiles)(columns[group], op.extents[group], size)
    register, l1, task = (list(level) for level in zip(*columns, strict=True))
    splits = program.knob("thread_split")
    if all(task[a] == register[a] for a in op.spatial) and not blockwise:
        _merge_blocks(op, register, task, splits)
    rounded = op.output.dtype in HALVES and (splits == 1 or _blocks(op, task) == 1)
    if rounded:
        _merge_blocks(op, register, task, 1)
        if group >= 0:
            task[group] = round_up(task[group], GROUPS[op.dtype])
    if rounded or all(l1[a] == register[a] for a in op.spatial):
        for a in op.reduce:
            l1[a] = task[a]
    blocks = _blocks(op, task)
    return (tuple(register), tuple(l1), tuple(task)), min(splits, blocks)


def _blocks(op: Operator, task: list[int]) -> int:
    """Number of reduce blocks of a task tile."""
    return math.prod(ceil_div(op.extents[a], task[a]) for a in op.reduce)


def _clipped(op: Operator, tiles: tuple[tuple[int, ...], ...], axis: int, lanes: int, packed: bool) -> tuple[int, int, int]:
    """(register, L1, task tile) of an axis, clipped to its extent; outer tiles stay multiples of inner tiles if needed.

    `lanes` is a vector's number of lanes along the axis, or 1. A vector may extend past the end of the axis. If nothing is
    packed, the register tile is clipped to the extent itself, provided that this takes no more vectors.
    """
    extent = op.extents[axis]
    register, l1, task = (tiles[level][axis] for level in range(3))
    if axis in op.reduce and lanes == 1:
        return min(register, extent), min(l1, extent), min(task, extent)
    whole = round_up(extent, lanes)
    exact = axis in op.spatial and not packed and len(vector_chunks(extent, lanes)) == whole // lanes
    register = min(register, extent if exact else whole)
    l1 = min(l1, round_up(extent, register))
    return register, l1, min(task, round_up(extent, l1))


def _merge_blocks(op: Operator, register: list[int], task: list[int], splits: int) -> None:
    """Merge the reduce blocks of a task into one, or into one per chunk along the outermost axis with several blocks."""
    outer = next((a for a in op.reduce if op.extents[a] > task[a]), None)
    for a in op.reduce:
        if a == outer and splits > 1:
            task[a] *= ceil_div(ceil_div(op.extents[a], task[a]), splits)
        elif op.extents[a] > task[a]:
            task[a] = round_up(op.extents[a], register[a])


def _plain(op: Operator, vector: int, access: Access, name: str, shift: Shift | None = None) -> Operand:
    """An operand that is accessed in place. With `shift`, the fused axis has stride 0: the store adds its offsets."""
    spans = [access.span(d, op.extents) for d in range(len(access.view))]
    guarded = tuple(d for d, (low, high) in enumerate(spans) if low < 0 or high >= access.view[d])
    strides = access.axis_strides()
    lane_stride = strides[vector]
    if shift is not None:
        strides = tuple(0 if a == shift.axis else stride for a, stride in enumerate(strides))
    return Operand(name, access, access.tensor.dtype, strides, lane_stride, guarded)


def _shifted(op: Operator, tiles: tuple[tuple[int, ...], ...], access: Access, name: str, shift: Shift) -> Operand:
    """The operand of a shifted matrix product's copied input."""
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
    padded = tuple(map(round_up, op.extents, task))  # the last task's box has the full size, too
    leaves = tuple(access.span(d, padded)[1] >= access.view[d] for d in range(2))
    size = shape[0] * pitch[0] + tiles[0][shift.axis]
    packing = Packing(-1, (*shape, shift.plane), pitch, size, leaves, shift.shared)
    return Operand(name, access, access.tensor.dtype, tuple(strides), 1, (), packing, tuple(tables))


def _packed(
    program: Program, tiles: tuple[tuple[int, ...], ...], vector: int, group: int, access: Access, name: str
) -> Operand:
    """A packed operand: one copy for all tasks if it serves them all and is not too large, else a copy by each task."""
    op, task = program.operator, tiles[2]
    if serves_all(op, access, task):
        whole = whole_tiles(op.extents, tiles[0], op.reduce, vector, group, GROUPS.get(op.dtype, 1))
        found = _copied(tiles[0][vector], whole, vector, group, access, name)
        assert found.packing is not None
        if found.packing.size * ITEM_BYTES[access.tensor.dtype] <= copy_limit(program.hardware):
            return replace(found, packing=replace(found.packing, shared=True))
    return _copied(tiles[0][vector], task, vector, group, access, name)


def _copied(width: int, task: tuple[int, ...], vector: int, group: int, access: Access, name: str) -> Operand:
    """An operand packed for one tile `task`: in panels of the register tile's width if possible, else as a box.

    Panels of groups of int8 also contain the accumulators' initial values. Pitches inside the grouped dimension include groups.
    """
    shape = tuple(1 + sum(c * (t - 1) for c, t in zip(row, task, strict=True)) for row in access.coefficients)
    size_of_group = GROUPS[access.tensor.dtype] if group >= 0 else 1
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
        for d in reversed(dimensions):
            pitch[d] = size
            item = ITEM_BYTES[access.tensor.dtype] * (size_of_group if d > grouped else 1)
            size *= shape[d] if d != len(shape) - 1 else _row_pitch(shape[d], item)
    pitch = [p * size_of_group if d > grouped and d != panel else p for d, p in enumerate(pitch)]
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
    """The dimension whose index, within a task tile, only the vector axis moves, in steps of one; -1 if there is none."""
    moving = [[a for a, c in enumerate(row) if c and (task[a] > 1 or a == vector)] for row in access.coefficients]
    touched = [d for d, axes in enumerate(moving) if vector in axes]
    if len(touched) == 1 and moving[touched[0]] == [vector] and access.coefficients[touched[0]][vector] == 1:
        return touched[0]
    return -1


def whole_tiles(
    extents: tuple[int, ...], register: tuple[int, ...], reduce: tuple[int, ...], vector: int, group: int = -1, size: int = 1
) -> tuple[int, ...]:
    """Sizes of a task tile that covers the whole operator, rounded up to whole register tiles and groups of `size`."""
    steps = [1 if a in reduce and a != vector else step for a, step in enumerate(register)]
    if group >= 0:
        steps[group] = size
    return tuple(round_up(extent, step) for extent, step in zip(extents, steps, strict=True))


def _row_pitch(length: int, item: int) -> int:
    """Distance in elements of packed rows: an odd number of cache lines, so that rows spread over the cache's sets."""
    if length == 1:
        return 1
    line = 64 // item
    lines = ceil_div(length, line)
    return length if lines == 1 else (lines + 1 - lines % 2) * line
