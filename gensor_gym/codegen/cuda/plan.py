"""What a CUDA kernel of a program does, decided before any text is written: threads, shared tiles, widths, guards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.cuda.dialect import CUDA, Dialect
from gensor_gym.codegen.cuda.shared import SharedTile, shared_layout, stage_bytes
from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.residency import resident_blocks
from gensor_gym.graph.knobs import KNOBS, Knob
from gensor_gym.graph.structure import convolution_choices, has_async_copies, is_aligned, is_staged
from gensor_gym.operators.types import INPUT, ITEM_BYTES, Access, Operator

WARP = 32
"""Threads of a warp of NVIDIA's, over which tensor cores' operands lie."""


@dataclass(frozen=True)
class Lanes:
    """How a fragment is loaded: `width` neighbours along one axis at a time (axis -1: one by one)."""

    axis: int = -1
    width: int = 1


@dataclass(frozen=True)
class Window:
    """How rows of a staged window are copied: `width` elements at a time, `lead` elements before the first that is read."""

    width: int = 1
    lead: int = 0

    def length(self, box: int) -> int:
        """Elements of a row in shared memory, for a box of so many along the last dimension."""
        return -(-(box + self.lead) // self.width) * self.width


@dataclass(frozen=True)
class BlockPlan:
    """A program and what follows from it for a GPU. Axes and dimensions are numbered as in the operator."""

    program: Program
    unguarded: bool = False
    """Whether text is written for tiles that lie wholly inside, which need no guards where they compute."""
    dialect: Dialect = CUDA
    """The language that it is written in."""

    @property
    def op(self) -> Operator:
        """The operator."""
        return self.program.operator

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(axis.name for axis in self.op.axes)

    @cached_property
    def register(self) -> tuple[int, ...]:
        """Register tile (spatial) and chunk of consecutive reduction points (reduce), [A]."""
        return self.program.tiles[0]

    @cached_property
    def block(self) -> tuple[int, ...]:
        """Block tile (spatial) and step of the reduction (reduce), [A]."""
        return self.program.tiles[1]

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """Neighbouring elements that a thread holds along every axis: register tile / virtual threads, [A]."""
        return tuple(t // v for t, v in zip(self.register, self.program.vthread, strict=True))

    @cached_property
    def reduce_threads(self) -> int:
        """Threads that share one output element."""
        return self.program.knob("reduce_threads") if self.op.reduce else 1

    @property
    def warp(self) -> int:
        """Threads that run together and shuffle: 32 in a warp of NVIDIA's, 64 in a wave of AMD's CDNA."""
        return self.program.hardware.warp

    @cached_property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.program.threads) * self.reduce_threads

    @property
    def cluster(self) -> int:
        """Blocks that run together and share what they copy."""
        return 1

    @property
    def together(self) -> tuple[int, ...]:
        """Neighbouring block tiles along every axis that a cluster of blocks takes together, [A]."""
        return (1,) * len(self.op.axes)

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Block tiles along every axis, those of a cluster as one, [A]."""
        return tuple(-(-g // c) for g, c in zip(self.program.grid, self.together, strict=True))

    @cached_property
    def tiles(self) -> int:
        """Block tiles over the spatial axes, those of a cluster as one."""
        return math.prod(self.grid[a] for a in self.op.spatial)

    @cached_property
    def steps(self) -> int:
        """Steps of the reduction, all reduce axes together."""
        return math.prod(self.program.grid[a] for a in self.op.reduce)

    @cached_property
    def slices(self) -> int:
        """Parts that the reduction is split into over blocks."""
        return self.program.knob("split_k") if self.op.reduce else 1

    @property
    def workspace_bytes(self) -> int:
        """Workspace: the parts of a split reduction."""
        return self.slices * self.op.output.size * ITEM_BYTES[self.op.accumulator] if self.slices > 1 else 0

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return self.tiles * self.slices

    @property
    def arch(self) -> str:
        """Architecture that the text is for."""
        return self.program.hardware.arch

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps that the kernel takes."""
        return ()

    @property
    def mapped(self) -> tuple[str, ...]:
        """Names of the tensors that the maps are of."""
        return ()

    @cached_property
    def chunks(self) -> tuple[int, ...]:
        """Chunks in a step along every reduce axis (1 along spatial ones), [A]."""
        pairs = zip(self.block, self.register, strict=True)
        return tuple(b // r if a in self.op.reduce else 1 for a, (b, r) in enumerate(pairs))

    @property
    def step_points(self) -> int:
        """Points of the reduction in one step."""
        return math.prod(self.block[a] for a in self.op.reduce)

    @cached_property
    def buffered(self) -> bool:
        """Whether fragments of the next point are loaded before the multiply-adds of the present one.

        It takes reads that all come from shared memory, points that one thread does one after the other, and a next point.
        """
        plain = self.reduce_threads == 1 and not self.guarded_points and all(self.staged)
        return self.program.knob("register_buffer") == 2 and plain and (self.stages > 1 or self.step_points > 1)

    @property
    def tile_name(self) -> str:
        """What the tiles that a step reads are called, after the tensor's name."""
        return "now" if self.stages > 1 else "tile"

    @cached_property
    def overhang(self) -> tuple[bool, ...]:
        """Whether tiles stick out of the extent, [A]."""
        parts = zip(self.grid, self.together, self.block, self.op.extents, strict=True)
        return tuple(g * c * t > n for g, c, t, n in parts)

    @cached_property
    def staged(self) -> tuple[bool, ...]:
        """Whether each read goes through shared memory."""
        return tuple(is_staged(self.op, read) for read in self.op.reads)

    @cached_property
    def stages(self) -> int:
        """Buffers of the shared tiles: while one is read, copies into the others are under way."""
        return min(self.program.knob("stages"), -(-self.steps // self.slices)) if any(self.staged) else 1

    @cached_property
    def shared(self) -> tuple[SharedTile | None, ...]:
        """Shared tile of each read, None where it is read directly."""
        return shared_layout(self)

    def shared_tile(self, index: int) -> SharedTile:
        """Shared tile of a staged read; ValueError for one that is read directly."""
        tile = self.shared[index]
        if tile is None:
            raise ValueError(f"read {index} of {self.op} is not staged; staged are {self.staged}")
        return tile

    @cached_property
    def stage_bytes(self) -> int:
        """Bytes of one buffer of all tiles."""
        return stage_bytes(self)

    def copies_by_itself(self, read: Access) -> bool:
        """Whether the GPU can copy a read to shared memory asynchronously: what it fills in for elements outside is 0."""
        outside = [d for d in range(len(read.view)) if any(reach(self, read, d))]
        fills = [self.op.pad_value if is_padded_along(self.op, read, d) else float(self.op.body == "max") for d in outside]
        return has_async_copies(self.program.hardware) and not any(fills)

    @cached_property
    def exchange_bytes(self) -> int:
        """Shared memory in which the warps of a wide reduction meet; it takes the place of the tiles."""
        if self.reduce_threads <= self.warp:
            return 0
        return 4 * self.threads // self.warp * math.prod(self.register[a] for a in self.op.spatial)

    @cached_property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return max(self.stages * self.stage_bytes, self.exchange_bytes)

    @cached_property
    def resident(self) -> int:
        """Blocks that a multiprocessor holds at a time, at least 1."""
        return resident_blocks(self.program, self.threads, self.shared_bytes)

    @cached_property
    def points(self) -> Lanes:
        """Reduction points that are taken together, so that a direct read contiguous along the reduction loads wide."""
        best = Lanes()
        for read, staged in zip(self.op.reads, self.staged, strict=True):
            axis = self.sole_mover(read, len(read.view) - 1)
            if staged or axis not in self.op.reduce:
                continue
            width = self.global_width(read, self.register[axis])
            best = max(best, Lanes(axis, width), key=lambda lanes: lanes.width)
        return best if best.width > 1 else Lanes()

    def sole_mover(self, access: Access, dimension: int) -> int:
        """The one axis that a dimension's index depends on; -1 if there is none or more than one.

        An axis of extent 1 whose tile is 1 does not count: it adds nothing.
        """
        extents = self.op.extents
        row = access.coefficients[dimension]
        moving = [a for a, coefficient in enumerate(row) if coefficient and (extents[a] > 1 or self.block[a] > 1)]
        return moving[0] if len(moving) == 1 else -1

    def global_width(self, access: Access, *lengths: int) -> int:
        """Widest aligned access in elements, at most knob `vector`, whose groups lie wholly inside or outside.

        `lengths` are what the width must divide: the run of neighbours that a thread holds, or the row of a box.
        """
        if self.sole_mover(access, len(access.view) - 1) < 0:
            return 1
        limit = upper_bound(self.op, access, len(access.view) - 1)
        for width in (4, 2):
            fits = all(length % width == 0 for length in (*lengths, limit))
            if width <= self.program.knob("vector") and fits and is_aligned(self.op, access, width):
                return width
        return 1

    def window(self, access: Access) -> Window:
        """Widest aligned copies of a staged box along whose last dimension several axes meet, of at most knob `vector`.

        Steps and tiles must begin whole copies apart; rows are then begun a little earlier and ended a little later, and
        every copy is inside the tensor or outside as a whole.
        """
        if access not in self.op.reads or self.program.knob("tensor_core") or self.program.knob("convolution") == 3:
            return Window()
        last = len(access.view) - 1
        row = access.coefficients[last]
        moving = [a for a, c in enumerate(row) if c and (self.op.extents[a] > 1 or self.block[a] > 1)]
        starts = [row[a] * self.block[a] for a in moving if self.program.grid[a] > 1]
        for width in (4, 2):
            fits = all(n % width == 0 for n in (access.view[last], *starts))
            if len(moving) > 1 and width <= self.program.knob("vector") and fits:
                return Window(width, access.offset[last] % width)
        return Window()

    def lanes(self, index: int) -> Lanes:
        """How the fragment of a read is loaded by a thread."""
        read, tile = self.op.reads[index], self.shared[index]
        dimension = tile.columns[-1] if tile else len(read.view) - 1
        axis = tile.axes[-1] if tile and tile.axes else self.sole_mover(read, dimension)
        if axis < 0 or not (tile and tile.axes) and read.coefficients[dimension][axis] != 1:
            return Lanes()
        if axis == self.points.axis:
            wanted, run = self.points.width, self.points.width
        elif axis in self.op.spatial:
            wanted, run = 4, self.inner[axis]
        else:
            return Lanes()
        if tile is None:
            width = self.global_width(read, run)
        else:
            others = [stride for d, stride in enumerate(tile.strides) if d != dimension and tile.shape[d] > 1]
            width = next(w for w in (4, 2, 1) if w <= wanted and all(n % w == 0 for n in (run, *others)))
        if axis == self.points.axis and width != self.points.width:
            return Lanes()
        return Lanes(axis, width) if width > 1 else Lanes()

    def store_width(self) -> int:
        """Width of the stores of the output."""
        write = self.op.write
        axis = self.sole_mover(write, len(write.view) - 1)
        if axis < 0 or write.coefficients[-1][axis] != 1:
            return 1
        return self.global_width(write, self.inner[axis])

    @cached_property
    def guarded_points(self) -> tuple[int, ...]:
        """Reduce axes whose overhanging points must be skipped in the loop, because some read cannot give a neutral."""
        reads = self.op.reads
        return tuple(
            a
            for a in (self.op.reduce if not self.unguarded else ())
            if self.overhang[a] and not all(neutralises(self, read, a) for read in reads)
        )


def make_plan(program: Program, dialect: Dialect = CUDA) -> BlockPlan:
    """The plan of a program without tensor cores; ValueError names a data type, knob or tile that cannot be generated."""
    check_program(program, 0, dialect.title)
    return BlockPlan(program, dialect=dialect)


def check_program(program: Program, tensor_core: int, title: str = "CUDA") -> None:
    """ValueError for a data type, a knob or a tile that kernels with this value of knob tensor_core do not take."""
    op = program.operator
    if op.dtype not in INPUT:
        raise ValueError(f"{title} code for {op.dtype!r} is not available; dtype is one of {', '.join(INPUT)}")
    if program.hardware.kind != "gpu":
        hw = program.hardware
        raise ValueError(f"{title} code is for hardware of kind 'gpu', not {hw.kind!r} ({hw.name})")
    for knob in KNOBS:
        value, accepted = program.knob(knob.name), _accepted(program, knob, tensor_core)
        if knob.kind in ("gpu", "both") and value not in accepted:
            raise ValueError(f"knob {knob.name}={value}: {title} code takes {accepted}")
    for a, axis in enumerate(op.axes):
        inner, outer, virtual = program.tiles[0][a], program.tiles[1][a], program.vthread[a]
        if inner < 1 or outer % inner or virtual < 1 or inner % virtual:
            parts = f"{virtual} vthreads, register tile {inner}, block tile {outer}"
            raise ValueError(f"axis {axis.name}: {parts}; each must divide the next")
        if axis.kind == "reduce" and virtual != 1:
            raise ValueError(f"axis {axis.name}: {virtual} vthreads; a reduce axis takes 1")


def _accepted(program: Program, knob: Knob, tensor_core: int) -> tuple[int, ...]:
    """Values of a knob that this family of kernels is written for."""
    if knob.name == "convolution":
        return (0,) if tensor_core else convolution_choices(program.operator, "gpu")
    if knob.name == "tensor_core":
        return (tensor_core,)
    if knob.name in ("persistent", "cluster") and tensor_core < 2:
        return (knob.default,)
    if knob.name == "stages" and not has_async_copies(program.hardware):
        return (1, 2)
    return knob.available


def upper_bound(op: Operator, access: Access, dimension: int) -> int:
    """Index along a dimension from which on nothing is needed: end of the view or of what the axes reach."""
    return min(access.view[dimension], access.span(dimension, op.extents)[1] + 1)


def is_padded_along(op: Operator, access: Access, dimension: int) -> bool:
    """Whether axis values in range index outside the view along this dimension."""
    low, high = access.span(dimension, op.extents)
    return low < 0 or high >= access.view[dimension]


def neutralises(plan: BlockPlan, read: Access, axis: int) -> bool:
    """Whether an index of the read tells that the reduce axis is out of range, so that a neutral can be filled in."""
    dimensions = range(len(read.view))
    return any(plan.sole_mover(read, d) == axis and not is_padded_along(plan.op, read, d) for d in dimensions)


def reach(plan: BlockPlan, access: Access, dimension: int) -> tuple[bool, int]:
    """What some tile can break along a dimension: whether it indexes below 0, and the limit it exceeds (0 for none)."""
    row, first = access.coefficients[dimension], access.offset[dimension]
    window = plan.window(access) if dimension == len(access.view) - 1 else Window()
    if window.width > 1:
        start = first + sum(c * (g - 1) * t for c, g, t in zip(row, plan.program.grid, plan.block, strict=True))
        box = 1 + sum(c * (t - 1) for c, t in zip(row, plan.block, strict=True))
        last, limit = start - window.lead + window.length(box) - 1, access.view[dimension]
    else:
        last = first + sum(c * (g * t - 1) for c, g, t in zip(row, plan.program.grid, plan.block, strict=True))
        limit = upper_bound(plan.op, access, dimension)
    return first < 0, limit if last >= limit else 0
