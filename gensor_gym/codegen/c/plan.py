"""Planning of a CPU program's C code, before any text is written: tiles, vectors, packed operands."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from gensor_gym.codegen.c.amx.tiling import Tiling, tiling
from gensor_gym.codegen.c.fuse import Shift, fuse
from gensor_gym.codegen.c.group import GROUP, GROUPS, group_axis, group_dimension, grouped_tiles, widened_tiles
from gensor_gym.codegen.c.layout import copies
from gensor_gym.codegen.c.layout.operands import C_TYPES, Operand
from gensor_gym.codegen.c.text import ceil_div, identifiers, round_up
from gensor_gym.codegen.program import Program
from gensor_gym.graph.structure import serves_all, vector_axis
from gensor_gym.operators.types import Access, Operator

DTYPES = ("float32", "int8", "bfloat16", "float16")


@dataclass(frozen=True)
class Chunk:
    """A vector in a row of the register tile: `width` lanes, a power of two, from lane `offset` on."""

    offset: int
    width: int


@dataclass(frozen=True)
class LoopPlan:
    """Plan of a CPU kernel: all decisions from which its C text is written.

    `vector` is the axis of the lanes, `chunks` are the vectors of a register tile's row, `stages` are the operands of the
    epilogue, `splits` is the number of parts into which the reduction is split over tasks.
    """

    program: Program
    axes: tuple[str, ...]  # [A] identifiers
    tiles: tuple[tuple[int, ...], ...]  # [3, A]: register, L1 and task tiles
    vector: int
    chunks: tuple[Chunk, ...]
    reads: tuple[Operand, ...]
    stages: tuple[Operand | None, ...]
    output: Operand
    splits: int
    threads: int
    shift: Shift | None = None
    full: tuple[int, ...] = ()
    """Sizes of the full register tile if this plan is for a smaller one at the end of an axis; else empty."""
    group: int = -1
    """Reduction axis whose elements are multiplied in groups (`c/micro/dot.py`, `c/micro/along.py`), or -1."""

    @property
    def op(self) -> Operator:
        """The program's operator."""
        return self.program.operator

    @property
    def vector_is_reduced(self) -> bool:
        """Whether the vector axis is a reduction axis. Lanes are then partial sums, which are added up at the end."""
        return self.vector in self.op.reduce

    @property
    def group_size(self) -> int:
        """Number of products that one instruction adds to a lane (a group): 4 for int8, 2 for bfloat16, 1 without groups."""
        return GROUPS[self.op.dtype] if self.group >= 0 else 1

    @property
    def groups_bytes(self) -> bool:
        """Whether products of int8 are added in groups of four.

        One operand is then unsigned, and sums have an excess (`c/micro/dot.py`).
        """
        return self.group_size == GROUP

    @property
    def largest(self) -> tuple[int, ...]:
        """Sizes of the full register tile."""
        return self.full or self.tiles[0]

    @cached_property
    def tiling(self) -> Tiling | None:
        """Division of a register tile among tile registers (`c/amx`); None if products are computed in vectors.

        Narrower tiles are multiplied as the full ones are.
        """
        whole = self.groups_channels or (self.groups_bytes and self.reads[0].packing is None)
        packed = self.reads[0].packing is not None
        found = [
            tiling(self.op, self.program.hardware, (register, *self.tiles[1:]), self.vector, self.group, whole, packed)
            for register in (self.largest, self.tiles[0])
        ]
        return found[1] if found[0] else None

    @property
    def step_of_group(self) -> int:
        """Number of channels that packing makes adjacent in an image, and of elements of the reduction that it does not cut."""
        return self.tiling.step if self.tiling and self.groups_channels and not self.reads_last else self.group_size

    @property
    def step_of_panel(self) -> int:
        """Number of channels whose groups follow one another in a panel of filters, for one tap after another.

        Tile registers then read a panel from its beginning to its end. With prefetches in each of these steps, a convolution of
        7x7 pixels from 512 to 512 channels, 3x3, takes 0.71 of the time (one core of an Intel Xeon with AMX, weights not in L2).
        """
        return self.tiling.step if self.tiling and self.groups_channels and self.tiling.taps < 0 else self.group_size

    @property
    def has_starts(self) -> bool:
        """Whether panels of packed weights end with the initial values of the accumulators."""
        return self.groups_bytes and not self.groups_lanes

    @property
    def groups_lanes(self) -> bool:
        """Whether groups run along the vector axis, so that a lane multiplies adjacent elements of the reduction."""
        return self.group == self.vector

    @property
    def groups_channels(self) -> bool:
        """Whether groups are of channels: of each pixel, and of each element of a filter (`c/channels.py`)."""
        return _groups_channels(self.op, self.vector, self.group)

    @property
    def reads_last(self) -> bool:
        """Whether the first operand is contiguous along the axis of groups, as an image with channels last is."""
        return self.group >= 0 and self.op.reads[0].coefficients[-1][self.group] == 1

    def group_dimension(self, operand: Operand) -> int:
        """Return the dimension of an operand along which elements are multiplied in groups."""
        return group_dimension(operand.access, self.group)

    @property
    def accumulator(self) -> str:
        """C type of the accumulators, and of partial outputs of a split reduction."""
        return C_TYPES[self.op.accumulator]

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Number of task tiles along spatial axes and of reduction blocks along reduction axes, [A]."""
        return tuple(ceil_div(n, t) for n, t in zip(self.op.extents, self.tiles[2], strict=True))

    @cached_property
    def reduce_blocks(self) -> int:
        """Number of reduction blocks of a task tile, over all parts of a split reduction."""
        return math.prod(self.grid[a] for a in self.op.reduce)

    @property
    def tasks(self) -> int:
        """Number of tasks that the parallel loop divides among threads."""
        return self.splits * math.prod(self.grid[a] for a in self.op.spatial)

    @cached_property
    def is_carried(self) -> bool:
        """Whether partial sums are stored in the output and loaded again, because a tile's reduction has several blocks."""
        inner = any(self.tiles[1][a] < min(self.tiles[2][a], self.op.extents[a]) for a in self.op.reduce)
        return inner or self.reduce_blocks > self.splits

    def constant_count(self, axis: int) -> int | None:
        """Return the number of elements of a task tile that are inside the axis; None if it differs between task tiles."""
        extent, tile = self.op.extents[axis], self.tiles[2][axis]
        if extent <= tile:
            return extent
        return tile if extent % tile == 0 else None

    def step(self, axis: int) -> int:
        """Return the number of elements along a reduction axis that one step of the micro-kernel processes."""
        return self.tiles[0][axis] if axis == self.vector else self.group_size if axis == self.group else 1

    def moves(self, axis: int) -> bool:
        """Return whether a task contains several register tiles along a spatial axis."""
        return self.tiles[2][axis] > self.largest[axis]

    def overhangs(self, axis: int) -> bool:
        """Return whether some register tile extends past the end of an axis."""
        register, task, extent = self.tiles[0][axis], self.tiles[2][axis], self.op.extents[axis]
        if self.largest[axis] > register:  # a smaller tile begins at a multiple of the full tile's size
            return any(count % self.largest[axis] not in (0, register) for count in (min(task, extent), extent % task))
        return (extent % register != 0 or (extent > task and task % register != 0)) and not self.moves_back(axis)

    def moves_back(self, axis: int) -> bool:
        """Return whether the last register tile of a task starts earlier to stay inside the axis.

        Some elements are then computed twice. This is impossible if partial sums are stored in the output. It is also impossible
        along lanes that are read from panels or from the copied input of a shifted product, because their tiles start at
        multiples of the width; such lanes end with a narrower tile.
        """
        size, extent, task = self.tiles[0][axis], self.op.extents[axis], self.tiles[2][axis]
        if axis in self.op.reduce or self.is_carried or extent % size == 0 or (extent % task or size) < size:
            return False
        if axis == self.shortened:
            return False
        return axis != self.vector or not (self.largest[axis] > size or self.copies_lanes)

    @cached_property
    def shortened(self) -> int:
        """Spatial axis at whose end register tiles have fewer rows, exactly those that are left; -1 without such an axis.

        So no row is computed twice, nor guarded. Only float32 operators with constant weights have such tiles. Convolutions of
        7x7 pixels, with AVX2, take 0.92 to 0.96 of the time (one core of an Intel Xeon).
        """
        size, task, extents = self.largest, self.tiles[2], self.op.extents
        axes = [a for a in self.op.spatial if a != self.vector and extents[a] % size[a] and extents[a] > size[a]]
        plain = self.op.frozen and self.op.dtype == "float32" and self.shift is None and self.vector in self.op.spatial
        if not plain or len(axes) != 1 or any(read.guarded for read in self.reads):
            return -1
        return axes[0] if task[axes[0]] >= extents[axes[0]] or task[axes[0]] % size[axes[0]] == 0 else -1

    @cached_property
    def copies_lanes(self) -> bool:
        """Whether lanes are read from packed panels or from the copied input of a shifted matrix product."""
        return self.shift is not None or any(read.packing and read.packing.panel >= 0 for read in self.reads)

    @cached_property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """Rows of accumulators in the register tile, each as its index along every axis (0 along vector and reduction axes)."""
        sizes = [self.tiles[0][a] if a in self.op.spatial and a != self.vector else 1 for a in range(len(self.op.axes))]
        positions: list[tuple[int, ...]] = [()]
        for size in sizes:
            positions = [row + (i,) for row in positions for i in range(size)]
        return tuple(positions)


def make_plan(program: Program) -> LoopPlan:
    """Plan the C code of a program; ValueError for a data type or hardware that C does not support.

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
    tiles, splits, block = _effective_tiles(program, vector, group, any(packs[: len(op.reads)]), blockwise)
    layout = _layout(replace(program, tiles=tiles), vector, group, block, packs[0])
    names = identifiers([t.name for t in (*op.inputs, op.output)])
    axes = identifiers([axis.name for axis in op.axes], names)

    def operand(read: Access, name: str, pack: bool) -> Operand:
        if shift is not None and read is op.reads[0]:
            return copies.shifted(op, tiles, read, name, shift)
        if pack:
            return copies.packed(program, tiles, layout if read is op.reads[0] else replace(layout, block=size), read, name)
        plain = _plain(op, vector, read, name)
        return replace(plain, lane_stride=size) if group == vector else plain

    reads = tuple(operand(*three) for three in zip(op.reads, names, packs, strict=False))
    extra = iter(names[len(op.reads) :])
    stages = tuple(None if s.access is None else _plain(op, vector, s.access, next(extra), shift) for s in op.epilogue)
    written = op.accumulator if splits > 1 else op.output.dtype
    output = replace(_plain(op, vector, op.write, names[-1], shift), dtype=written)
    chunks = vector_chunks(tiles[0][vector] // (size if group == vector else 1), program.hardware.lanes)
    return LoopPlan(
        program=program, axes=axes, tiles=tiles, vector=vector, chunks=chunks, reads=reads, stages=stages, output=output,
        splits=splits, threads=max(1, program.hardware.units), shift=shift, group=group,
    )  # fmt: skip


def _layout(program: Program, vector: int, group: int, block: int, packed: bool) -> copies.Layout:
    """Return how copies are laid out; `packed` says whether there is one of the first operand."""
    op, size, in_tiles = program.operator, GROUPS[program.operator.dtype] if group >= 0 else 1, None
    if _groups_channels(op, vector, group):
        in_tiles = tiling(op, program.hardware, program.tiles, vector, group, True, packed)
    together = in_tiles.step if in_tiles and in_tiles.taps < 0 else size
    return copies.Layout(vector, group, block, together, bool(in_tiles and in_tiles.pixels))


def _groups_channels(op: Operator, vector: int, group: int) -> bool:
    return group not in (-1, vector) and not op.reads[1].coefficients[-1][vector]


def _check(program: Program) -> None:
    if program.operator.dtype not in DTYPES:
        raise ValueError(f"C kernels take dtype {', '.join(DTYPES[:-1])} or {DTYPES[-1]}, got {program.operator.dtype!r}")
    if program.hardware.kind != "cpu":
        raise ValueError(f"C is generated for hardware of kind 'cpu', got {program.hardware.name!r} of kind 'gpu'")


def vector_chunks(width: int, lanes: int) -> tuple[Chunk, ...]:
    """Split a row of `width` lanes into vectors of `lanes` lanes, then into smaller powers of two for the remainder."""
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
) -> tuple[tuple[tuple[int, ...], ...], int, int]:
    """Return the tile sizes that the C code uses, the number of parts of a split reduction, and `LoopPlan.step_of_group`.

    The sizes are clipped to the extents.

    To keep accumulators in registers, parts of the reduction are merged: the L1 tiles of a block if an L1 tile is one register
    tile, and all blocks if a task tile is one register tile and nothing is packed block by block (`blockwise`). Blocks are also
    merged if the output's type cannot hold partial sums.
    """
    op, lanes = program.operator, program.hardware.lanes
    columns = [_clipped(op, program.tiles, a, lanes if a == vector else 1, packed) for a in range(len(op.axes))]
    block = 1
    if group >= 0:
        size = block = GROUPS[op.dtype]
        channels, last = _groups_channels(op, vector, group), op.reads[0].coefficients[-1][group] == 1
        whole = channels or (size == GROUP and not program.knob("pack_a"))
        levels: tuple[tuple[int, ...], ...] = tuple(zip(*columns, strict=True))
        in_tiles = tiling(op, program.hardware, levels, vector, group, whole, program.knob("pack_a") == 1)
        size, block = (in_tiles.step, in_tiles.step if channels and not last else size) if in_tiles else (size, block)
        columns[group] = (widened_tiles if group == vector else grouped_tiles)(columns[group], op.extents[group], size)
    register, l1, task = (list(level) for level in zip(*columns, strict=True))
    splits = program.knob("thread_split")
    if all(task[a] == register[a] for a in op.spatial) and not blockwise:
        _merge_blocks(op, register, task, splits)
    rounded = op.output.dtype != op.accumulator and (splits == 1 or _blocks(op, task) == 1)
    if rounded:
        _merge_blocks(op, register, task, 1)
        if group >= 0:
            task[group] = round_up(task[group], max(block, GROUPS[op.dtype]))
    if rounded or all(l1[a] == register[a] for a in op.spatial):
        for a in op.reduce:
            l1[a] = task[a]
    blocks = _blocks(op, task)
    return (tuple(register), tuple(l1), tuple(task)), min(splits, blocks), block


def _blocks(op: Operator, task: list[int]) -> int:
    return math.prod(ceil_div(op.extents[a], task[a]) for a in op.reduce)


def _clipped(op: Operator, tiles: tuple[tuple[int, ...], ...], axis: int, lanes: int, packed: bool) -> tuple[int, int, int]:
    """Return the tile sizes (register, L1, task) of an axis, clipped to its extent.

    Outer tiles stay multiples of inner tiles if needed. `lanes` is a vector's number of lanes along the axis, or 1. A vector may
    extend past the end of the axis. If nothing is packed, the register tile is clipped to the exact extent if this takes no more
    vectors.
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
    """Merge the reduction blocks of a task into one by increasing the tile sizes `task` in place.

    If the reduction is split, they are merged into one for each part, along the outermost axis with several blocks.
    """
    outer = next((a for a in op.reduce if op.extents[a] > task[a]), None)
    for a in op.reduce:
        if a == outer and splits > 1:
            task[a] *= ceil_div(ceil_div(op.extents[a], task[a]), splits)
        elif op.extents[a] > task[a]:
            task[a] = round_up(op.extents[a], register[a])


def _plain(op: Operator, vector: int, access: Access, name: str, shift: Shift | None = None) -> Operand:
    """Return an operand that is accessed in place.

    With `shift`, the fused axis has stride 0, because the store adds its offsets.
    """
    spans = [access.span(d, op.extents) for d in range(len(access.view))]
    guarded = tuple(d for d, (low, high) in enumerate(spans) if low < 0 or high >= access.view[d])
    strides = access.axis_strides()
    lane_stride = strides[vector]
    if shift is not None:
        strides = tuple(0 if a == shift.axis else stride for a, stride in enumerate(strides))
    return Operand(name, access, access.tensor.dtype, strides, lane_stride, guarded)
