"""Planning of a GPU kernel, before any text is written: threads, tiles in shared memory, widths of accesses, guards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.cuda.dialect import CUDA, Dialect
from gensor_gym.codegen.cuda.tensor_map import TensorMap
from gensor_gym.codegen.cuda.tiles.shared import SharedTile, shared_layout, stage_bytes
from gensor_gym.codegen.cuda.tiles.tiling import Tiling, is_padded_along
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.residency import resident_blocks
from gensor_gym.graph.knobs import KNOBS, Knob
from gensor_gym.graph.structure import MatrixAxes, convolution_choices, has_async_copies, matrix_axes
from gensor_gym.operators.types import INPUT, ITEM_BYTES, Access

WARP = 32
"""Number of threads in an NVIDIA warp, over which the operands of tensor cores are distributed."""


@dataclass(frozen=True)
class Lanes:
    """The way in which a thread loads its elements of one input: `width` adjacent elements along `axis` at a time.

    Axis -1 means one element at a time.
    """

    axis: int = -1
    width: int = 1


@dataclass(frozen=True)
class BlockPlan(Tiling):
    """Plan of a GPU kernel: a program and the layout of its kernel, derived from the schedule."""

    unguarded: bool = False
    """Whether the text is for tiles entirely inside the tensors, which need no guards."""
    dialect: Dialect = CUDA
    """Language of the kernel's text."""

    @cached_property
    def reduce_threads(self) -> int:
        """Number of threads that share one output element and add up its reduction together."""
        return self.program.knob("reduce_threads") if self.op.reduce else 1

    @property
    def warp(self) -> int:
        """Number of threads that run together and can shuffle: 32 in an NVIDIA warp, 64 in a wave of AMD's CDNA."""
        return self.program.hardware.warp

    @cached_property
    def threads(self) -> int:
        """Number of threads of a block."""
        return math.prod(self.program.threads) * self.reduce_threads

    @cached_property
    def tiles(self) -> int:
        """Number of block tiles over the spatial axes. The tiles of a cluster count as one."""
        return math.prod(self.grid[a] for a in self.op.spatial)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspace: partial results of a split reduction."""
        return self.slices * self.op.output.size * ITEM_BYTES[self.op.accumulator] if self.slices > 1 else 0

    @property
    def cleared_bytes(self) -> int:
        """Number of bytes at the workspace's beginning that must be zero before a call, and that are zero again after it."""
        return 0

    @property
    def blocks(self) -> int:
        """Number of blocks that the kernel is launched with."""
        return self.tiles * self.slices

    @property
    def arch(self) -> str:
        """GPU architecture that the text is compiled for, for example `sm_80`."""
        return self.program.hardware.arch

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Descriptions of arrays for TMA (tensor maps) that the kernel takes as arguments."""
        return ()

    @property
    def mapped(self) -> tuple[str, ...]:
        """Names of the tensors that `maps` describe, in the same order."""
        return ()

    @cached_property
    def chunks(self) -> tuple[int, ...]:
        """Number of chunks (consecutive reduction points) in a step along every reduce axis, and 1 along spatial axes, [A]."""
        pairs = zip(self.block, self.register, strict=True)
        return tuple(b // r if a in self.op.reduce else 1 for a, (b, r) in enumerate(pairs))

    @property
    def step_points(self) -> int:
        """Number of reduction points (combinations of reduction indices) in one step."""
        return math.prod(self.block[a] for a in self.op.reduce)

    @cached_property
    def buffered(self) -> bool:
        """Whether the inputs of the next reduction point are loaded to registers before the multiply-adds of the current point.

        This requires that all inputs come from shared memory, that one thread computes all points of an output without guards,
        and that there is a next point.
        """
        plain = self.reduce_threads == 1 and not self.guarded_points and all(self.staged)
        return self.program.knob("register_buffer") == 2 and plain and (self.stages > 1 or self.step_points > 1)

    @property
    def tile_name(self) -> str:
        """Suffix of the C name of a tile in shared memory where a step reads it.

        It is `now` if there are several buffers, else `tile`.
        """
        return "now" if self.stages > 1 else "tile"

    @cached_property
    def overhang(self) -> tuple[bool, ...]:
        """Whether block tiles extend past the operator's extent along every axis, [A]."""
        parts = zip(self.grid, self.together, self.block, self.op.extents, strict=True)
        return tuple(g * c * t > n for g, c, t, n in parts)

    @cached_property
    def shared(self) -> tuple[SharedTile | None, ...]:
        """Tile in shared memory of each input; None if the input is not staged there."""
        return shared_layout(self)

    def shared_tile(self, index: int) -> SharedTile:
        """Return the tile in shared memory of input `index`; ValueError if the input is not staged there."""
        tile = self.shared[index]
        if tile is None:
            raise ValueError(f"read {index} of {self.op} is not staged; staged are {self.staged}")
        return tile

    @cached_property
    def stage_bytes(self) -> int:
        """Number of bytes of one buffer in shared memory, which contains the tiles of all staged inputs."""
        return stage_bytes(self.shared)

    @cached_property
    def exchange_bytes(self) -> int:
        """Bytes of shared memory through which warps that share an output combine their results.

        They reuse the memory of the tiles.
        """
        if self.reduce_threads <= self.warp:
            return 0
        return 4 * self.threads // self.warp * math.prod(self.register[a] for a in self.op.spatial)

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory of a block."""
        return max(self.stages * self.stage_bytes, self.exchange_bytes)

    @cached_property
    def resident(self) -> int:
        """Number of blocks that a multiprocessor runs at the same time, at least 1."""
        return resident_blocks(self.program, self.threads, self.shared_bytes)

    @cached_property
    def points(self) -> Lanes:
        """Axis and number of reduction points that a thread loads at once.

        More than one allows vector loads of inputs that are not staged and that are contiguous along the axis.
        """
        best = Lanes()
        for read, staged in zip(self.op.reads, self.staged, strict=True):
            axis = self.sole_mover(read, len(read.view) - 1)
            if staged or axis not in self.op.reduce:
                continue
            width = self.global_width(read, self.register[axis])
            best = max(best, Lanes(axis, width), key=lambda lanes: lanes.width)
        return best if best.width > 1 else Lanes()

    def lanes(self, index: int) -> Lanes:
        """Return the vector loads with which a thread reads its elements of input `index`."""
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
        """Return the number of output elements that one store writes."""
        write = self.op.write
        axis = self.sole_mover(write, len(write.view) - 1)
        if axis < 0 or write.coefficients[-1][axis] != 1:
            return 1
        return self.global_width(write, self.inner[axis])

    @cached_property
    def guarded_points(self) -> tuple[int, ...]:
        """Reduce axes along which a loop must skip points past the extent.

        Along these axes, some input cannot return a neutral element past the extent.
        """
        reads = self.op.reads
        return tuple(
            a
            for a in (self.op.reduce if not self.unguarded else ())
            if self.overhang[a] and not all(neutralises(self, read, a) for read in reads)
        )


@dataclass(frozen=True)
class ProductPlan(BlockPlan):
    """Plan of a matrix product on tensor cores, by mma.sync or wgmma, with both operands staged in shared memory."""

    @cached_property
    def roles(self) -> MatrixAxes:
        """Axes m, n and k and inputs A and B of the matrix product; ValueError if the operator is not a matrix product."""
        roles = matrix_axes(self.op)
        if roles is None:
            raise ValueError(f"{self.op} is no product of matrices")
        return roles

    @cached_property
    def item(self) -> int:
        """Bytes of an element of either operand."""
        return ITEM_BYTES[self.op.reads[0].tensor.dtype]

    @cached_property
    def stages(self) -> int:
        """Number of buffers in shared memory: one is multiplied while copies fill the others."""
        return self.program.knob("stages")


def make_plan(program: Program, dialect: Dialect = CUDA) -> BlockPlan:
    """Plan the kernel of a program without tensor cores. ValueError names an unsupported data type, machine, knob or tile."""
    check_program(program, 0, dialect.title)
    return BlockPlan(program, dialect=dialect)


def check_program(program: Program, tensor_core: int, title: str = "CUDA") -> None:
    """Check that kernels with this value of knob `tensor_core` support the program's data type, machine, knobs and tiles.

    ValueError names the unsupported part.
    """
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
    if knob.name == "convolution":
        return (0,) if tensor_core else convolution_choices(program.operator, "gpu")
    if knob.name == "tensor_core":
        return (tensor_core,)
    if knob.name in ("persistent", "cluster") and tensor_core < 2:
        return (knob.default,)
    if knob.name == "stages" and not has_async_copies(program.hardware):
        return (1, 2)
    return knob.available


def neutralises(plan: BlockPlan, read: Access, axis: int) -> bool:
    """Return whether loads of an input can tell that a reduce axis is past its extent, and return a neutral element there.

    An index of the input must depend on this axis alone.
    """
    dimensions = range(len(read.view))
    return any(plan.sole_mover(read, d) == axis and not is_padded_along(plan.op, read, d) for d in dimensions)
