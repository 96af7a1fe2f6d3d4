"""What the C of a CPU program looks like, decided before a line is written: tiles, vectors, packed operands."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_gym.codegen.c_group import GROUP, group_axis, grouped_tiles
from gensor_gym.codegen.c_text import ceil_div, identifiers, round_up
from gensor_gym.codegen.program import Program
from gensor_gym.graph.structure import vector_axis
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

C_TYPES = {"float32": "float", "int8": "int8_t", "int32": "int32_t"}
DTYPES = ("float32", "int8")


@dataclass(frozen=True)
class Chunk:
    """A power-of-two piece of the register tile's width: `width` lanes from lane `offset` on."""

    offset: int
    width: int


@dataclass(frozen=True)
class Packing:
    """Layout of a packed operand.

    `panel` is the dimension that is cut into panels as wide as the register tile, or -1 for a plain box. `shape` is the
    box of the task tile; `pitch[d]` is the distance in elements between neighbours along dimension d of it (along
    `panel`: between whole panels). `size` counts elements of the buffer.
    """

    panel: int
    shape: tuple[int, ...]  # [D]
    pitch: tuple[int, ...]  # [D]
    size: int


@dataclass(frozen=True)
class Operand:
    """A tensor as the micro-kernel sees it.

    `strides[a]` is the distance in elements when axis a moves by one from tile to tile, `lane_stride` from lane to lane
    of a vector (they differ in panels). `guarded` lists dimensions whose index can leave the view.
    """

    name: str
    access: Access
    c_type: str
    strides: tuple[int, ...]  # [A]
    lane_stride: int
    guarded: tuple[int, ...]
    packing: Packing | None = None


@dataclass(frozen=True)
class Plan:
    """Everything that the printers need to know about one kernel."""

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
    group: int = -1
    """Reduce axis whose elements are taken four at a time (`c_dot`), or -1."""

    @property
    def op(self) -> Operator:
        """The operator."""
        return self.program.operator

    @property
    def vector_is_reduced(self) -> bool:
        """Whether the lanes hold partial sums that are added up at the end."""
        return self.vector in self.op.reduce

    @property
    def accumulator(self) -> str:
        """C type of accumulators, output and epilogue operands."""
        return C_TYPES[self.op.accumulator]

    @property
    def grid(self) -> tuple[int, ...]:
        """Task tiles along spatial axes, reduce blocks along reduce axes, [A]."""
        return tuple(ceil_div(n, t) for n, t in zip(self.op.extents, self.tiles[2], strict=True))

    @property
    def reduce_blocks(self) -> int:
        """Reduce blocks of a task tile, over all chunks of the reduction."""
        return math.prod(self.grid[a] for a in self.op.reduce)

    @property
    def tasks(self) -> int:
        """Items of the parallel loop."""
        return self.splits * math.prod(self.grid[a] for a in self.op.spatial)

    @property
    def is_carried(self) -> bool:
        """Whether partial sums travel through the output from one reduce block to the next."""
        inner = any(self.tiles[1][a] < min(self.tiles[2][a], self.op.extents[a]) for a in self.op.reduce)
        return inner or self.reduce_blocks > self.splits

    def constant_count(self, axis: int) -> int | None:
        """Elements of the task tile inside the extent along an axis, where all task tiles agree on it."""
        extent, tile = self.op.extents[axis], self.tiles[2][axis]
        if extent <= tile:
            return extent
        return tile if extent % tile == 0 else None

    def step(self, axis: int) -> int:
        """Elements of a reduce axis that one step of the micro-kernel takes."""
        return GROUP if axis == self.group else self.tiles[0][axis] if axis == self.vector else 1

    def moves(self, axis: int) -> bool:
        """Whether a task holds several register tiles along a spatial axis."""
        return self.tiles[2][axis] > self.tiles[0][axis]

    def overhangs(self, axis: int) -> bool:
        """Whether some register tile sticks out of the extent."""
        return self.op.extents[axis] % self.tiles[0][axis] != 0

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the accumulator rows in the register tile along every axis (0 along vector and reduce axes)."""
        sizes = [
            self.tiles[0][a] if a in self.op.spatial and a != self.vector else 1 for a in range(len(self.op.axes))
        ]
        positions: list[tuple[int, ...]] = [()]
        for size in sizes:
            positions = [row + (i,) for row in positions for i in range(size)]
        return tuple(positions)


def make_plan(program: Program) -> Plan:
    """The plan of a program; ValueError for a data type that the C generator does not know."""
    op = program.operator
    if op.dtype not in DTYPES:
        raise ValueError(f"C kernels take dtype {' or '.join(DTYPES)}, got {op.dtype!r}")
    if program.hardware.kind != "cpu":
        raise ValueError(f"C is generated for hardware of kind 'cpu', got {program.hardware.name!r} of kind 'gpu'")
    convolution = program.knob("convolution")
    vector = vector_axis(op, convolution)
    packs = [program.knob("pack_a") == 1, program.knob("pack_b") == 1 or convolution == 1]
    group = group_axis(op, vector, packs[: len(op.reads)])
    tiles, splits = _effective_tiles(program, vector, group, any(packs[: len(op.reads)]))
    names = identifiers([t.name for t in (*op.inputs, op.output)])
    axes = identifiers([axis.name for axis in op.axes], names)
    reads = tuple(
        _packed(op, tiles, vector, group, read, name) if pack else _plain(op, vector, read, name)
        for read, name, pack in zip(op.reads, names, packs, strict=False)
    )
    extra = iter(names[len(op.reads) :])
    stages = tuple(None if s.access is None else _plain(op, vector, s.access, next(extra)) for s in op.epilogue)
    return Plan(
        program=program,
        axes=axes,
        tiles=tiles,
        vector=vector,
        chunks=_chunks(tiles[0][vector], program.hardware.lanes),
        reads=reads,
        stages=stages,
        output=_plain(op, vector, op.write, names[-1]),
        splits=splits,
        threads=max(1, program.hardware.units),
        group=group,
    )


def _chunks(width: int, lanes: int) -> tuple[Chunk, ...]:
    """`width` lanes as vectors of the hardware's width, then smaller powers of two."""
    chunks, offset, size = [], 0, lanes
    while offset < width:
        if size <= width - offset:
            chunks.append(Chunk(offset, size))
            offset += size
        else:
            size //= 2
    return tuple(chunks)


def _effective_tiles(
    program: Program, vector: int, group: int, packed: bool
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Tiles without the part that no element ever falls into, and the chunks of the reduction.

    Where the L1 tile holds one register tile, the accumulators stay in registers for the whole reduce block; where the
    task tile does, and nothing is packed block by block, for the whole reduction.
    """
    op, lanes = program.operator, program.hardware.lanes
    columns = [_clipped(op, program.tiles, a, a == vector, lanes) for a in range(len(op.axes))]
    if group >= 0:
        columns[group] = grouped_tiles(columns[group], op.extents[group])
    register, l1, task = (list(level) for level in zip(*columns, strict=True))
    splits = program.knob("thread_split")
    if all(task[a] == register[a] for a in op.spatial) and not packed:
        _merge_blocks(op, register, task, splits)
    if all(l1[a] == register[a] for a in op.spatial):
        for a in op.reduce:
            l1[a] = task[a]
    blocks = math.prod(ceil_div(op.extents[a], task[a]) for a in op.reduce)
    return (tuple(register), tuple(l1), tuple(task)), min(splits, blocks)


def _clipped(op: Operator, tiles: tuple[tuple[int, ...], ...], axis: int, vector: bool, lanes: int) -> tuple[int, int, int]:
    """The three tiles of an axis cut to its extent, outer ones still multiples of inner ones where that is needed."""
    extent = op.extents[axis]
    register, l1, task = (tiles[level][axis] for level in range(3))
    if axis in op.reduce and not vector:
        return min(register, extent), min(l1, extent), min(task, extent)
    register = min(register, round_up(extent, lanes) if vector else extent)
    l1 = min(l1, round_up(extent, register))
    return register, l1, min(task, round_up(extent, l1))


def _merge_blocks(op: Operator, register: list[int], task: list[int], splits: int) -> None:
    """Make the reduce blocks of a task one, or one for each chunk of the outermost axis that has several."""
    outer = next((a for a in op.reduce if op.extents[a] > task[a]), None)
    for a in op.reduce:
        if a == outer and splits > 1:
            task[a] *= ceil_div(ceil_div(op.extents[a], task[a]), splits)
        elif op.extents[a] > task[a]:
            task[a] = round_up(op.extents[a], register[a])


def _plain(op: Operator, vector: int, access: Access, name: str) -> Operand:
    """An operand read or written where it lies."""
    spans = [access.span(d, op.extents) for d in range(len(access.view))]
    guarded = tuple(d for d, (low, high) in enumerate(spans) if low < 0 or high >= access.view[d])
    strides = access.axis_strides()
    return Operand(name, access, C_TYPES[access.tensor.dtype], strides, strides[vector], guarded)


def _packed(
    op: Operator, tiles: tuple[tuple[int, ...], ...], vector: int, group: int, access: Access, name: str
) -> Operand:
    """An operand copied into a buffer of its own: panels of the register tile's width if they exist, else a box."""
    task = tiles[2]
    shape = tuple(1 + sum(c * (t - 1) for c, t in zip(row, task, strict=True)) for row in access.coefficients)
    panel = _panel_dimension(access, task, vector)
    width = tiles[0][vector]
    dimensions = range(len(shape))
    pitch = [0] * len(shape)
    size = 1
    if panel >= 0:
        size = width
        for d in reversed([d for d in dimensions if d != panel]):
            rows = shape[d] + (GROUP if group >= 0 and access.coefficients[d][group] else 0)
            pitch[d], size = size, size * rows
        pitch[panel], size = size, size * ceil_div(shape[panel], width)
    else:
        for d in reversed(dimensions):
            pitch[d] = size
            size *= shape[d] if d != len(shape) - 1 else _row_pitch(shape[d], ITEM_BYTES[access.tensor.dtype])
    strides = [
        sum(pitch[d] * access.coefficients[d][a] for d in dimensions if not (a == vector and d == panel))
        for a in range(len(task))
    ]
    lane_stride = strides[vector]
    if panel >= 0:
        strides[vector], lane_stride = pitch[panel] // width, GROUP if group >= 0 else 1
    packing = Packing(panel, shape, tuple(pitch), size)
    return Operand(name, access, C_TYPES[access.tensor.dtype], tuple(strides), lane_stride, (), packing)


def _panel_dimension(access: Access, task: tuple[int, ...], vector: int) -> int:
    """The dimension that, inside a task tile, only the vector axis moves along, one by one; -1 if there is none."""
    moving = [
        [a for a, c in enumerate(row) if c and (task[a] > 1 or a == vector)] for row in access.coefficients
    ]
    touched = [d for d, axes in enumerate(moving) if vector in axes]
    if len(touched) == 1 and moving[touched[0]] == [vector] and access.coefficients[touched[0]][vector] == 1:
        return touched[0]
    return -1


def _row_pitch(length: int, item: int) -> int:
    """Elements from one packed row to the next: an odd number of cache lines, so that rows spread over sets."""
    if length == 1:
        return 1
    line = 64 // item
    lines = ceil_div(length, line)
    return length if lines == 1 else (lines + 1 - lines % 2) * line
