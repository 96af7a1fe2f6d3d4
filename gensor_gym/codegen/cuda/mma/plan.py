"""Planning of a tensor-core kernel with mma.sync, before any text is written: instruction, shared tiles, copies.

The warps of a block divide its tile as threads do in `cuda/plan.py`, and `tiles[0]` is the tile of a warp. Both operands are
staged in shared memory. The dimensions of a shared tile are axes of the operator, not dimensions of the tensor: the image of a
convolution is in shared memory once for every position (r, s) of the window in a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gensor_gym.codegen.cuda.index import bounds
from gensor_gym.codegen.cuda.plan import WARP, ProductPlan, check_program
from gensor_gym.codegen.cuda.text import total
from gensor_gym.codegen.cuda.tiles.tiling import upper_bound
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.residency import counted_registers, resident_blocks
from gensor_gym.graph.matrices.choices import mma_types
from gensor_gym.graph.structure import matrix_axes

UNIT = 16
"""Bytes of a unit: a row of one `ldmatrix` matrix, the widest copy, and the part of a row that a swizzle moves as a whole."""
BANK_UNITS = 8
"""Number of 16-byte units that all banks of shared memory serve at once."""
INSTRUCTION_ROWS, INSTRUCTION_COLUMNS = 16, 8
"""Number of rows (m) and columns (n) of an instruction. If the hardware's instruction has 8 rows, two count as one."""
HELD_REGISTERS = 32
"""Most registers in which a thread may hold an operand's loaded elements until the products of a step are done."""
CODE_LIMIT = 512
"""Largest number of instructions of one unrolled loop body, beyond which the instruction cache overflows."""
HELD_FLOAT8, SPARE_FLOAT8, WIDENED_POINTS = 12, 8, 2
"""Register limits for operands that are copied byte by byte, or that machine code converts to 16 bits.

For 8-bit floats, HELD_FLOAT8 replaces HELD_REGISTERS, and launch bounds leave SPARE_FLOAT8 registers in addition to those that
`counted_registers` returns. For operands converted to 16 bits, WIDENED_POINTS is the limit on fragments along the reduction in an
unrolled body, because more would be converted ahead. With 32 and 0 registers and bodies of `CODE_LIMIT` instructions, a tenth of
randomly drawn convolutions spilled (NVRTC 13.0).
"""
HELD_BESIDE = 16
"""Number of registers for single bytes of int8 that fit in addition to those that `counted_registers` returns.

If a thread needs more, launch bounds request fewer blocks, so that all its registers fit. Without this rule, 22 of 180 randomly
drawn convolutions spilled; all but five of them had 18 more than fit (NVRTC 13.0, sm_80, sm_89, sm_90).
"""

FLOAT8 = "float8_e4m3fn"
Way = Literal["async", "held", "direct"]


@dataclass(frozen=True)
class Swizzle:
    """Permutation of 16-byte units: unit u of row r is at position u xor ((r >> shift & mask) * factor) of the row."""

    shift: int
    mask: int
    factor: int


@dataclass(frozen=True)
class OperandTile:
    """One operand's tile of a step in shared memory.

    A row is contiguous along `axes[-1]`; rows are `pitch` elements apart.

    `axes` are the axes that index the operand, and `shape` is the block tile along them. `way` tells how copies of `width`
    adjacent elements are made: asynchronously, directly, or held in registers while the block multiplies. `offset` is the start
    of the tile in a buffer and `stage` its length, both in bytes.
    """

    read: int
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    pitch: int
    width: int
    way: Way
    swizzle: Swizzle | None
    offset: int
    stage: int
    shifts: int = -1
    """Window axis that shifts the tile's rows by less than a copy; -1 for no such axis.

    A copy then combines two aligned loads.
    """

    def row_stride(self, axis: int) -> int:
        """Return the number of rows from one index along an axis to the next.

        It is 0 if the axis does not index the tile, or runs within a row.
        """
        place = self.axes.index(axis) if axis in self.axes[:-1] else -1
        return math.prod(self.shape[place + 1 : -1]) if place >= 0 else 0


@dataclass(frozen=True)
class MatrixPlan(ProductPlan):
    """Plan of a kernel with mma.sync: a program and the layout of its kernel, derived from the schedule.

    Axes are numbered as in the operator.
    """

    @cached_property
    def turing(self) -> bool:
        """Whether the GPU is sm_75 (Turing), with shorter instructions and without asynchronous copies."""
        return self.program.hardware.arch == "sm_75"

    @cached_property
    def depth(self) -> int:
        """Number of elements along k that one instruction multiplies."""
        return mma_types(self.program.hardware)[self.op.dtype]

    @cached_property
    def units(self) -> int:
        """Number of 16-byte units along k that one instruction multiplies.

        B's fragment has as many registers, and A's twice as many.
        """
        return self.depth * self.item // UNIT

    @cached_property
    def threads(self) -> int:
        """Number of threads of a block: a warp for each warp tile."""
        return math.prod(self.program.threads) * WARP

    @cached_property
    def repeats(self) -> tuple[int, ...]:
        """Spatial axes that repeat the matrix product: all but m and n."""
        return tuple(a for a in self.op.spatial if a not in (self.roles.m, self.roles.n))

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Reduce axes that repeat the matrix product: all but k."""
        return tuple(a for a in self.op.reduce if a != self.roles.k)

    @cached_property
    def m_tiles(self) -> int:
        """Number of instructions that cover a warp's tile along m."""
        return self.register[self.roles.m] // INSTRUCTION_ROWS

    @cached_property
    def n_tiles(self) -> int:
        """Number of instructions that cover a warp's tile along n."""
        return self.register[self.roles.n] // INSTRUCTION_COLUMNS

    @cached_property
    def interleave(self) -> int:
        """Number of instructions along n whose columns alternate, so that a lane's elements of B are contiguous in shared memory.

        Column c of instruction j is column c * interleave + j of the group. The number is 1 for 16-bit elements, which ldmatrix
        transposes.
        """
        if self.item == 2:
            return 1
        return next(width for width in (4, 2, 1) if self.n_tiles % width == 0)

    @cached_property
    def fragment_points(self) -> int:
        """Number of fragments along the reduction in a step.

        There is one for each instruction along k, at every index of the other reduce axes.
        """
        return self.block[self.roles.k] // self.depth * math.prod(self.block[a] for a in self.places)

    @cached_property
    def products(self) -> int:
        """Number of multiply-add instructions that a warp issues for one fragment along the reduction."""
        repeats = math.prod(self.register[a] for a in self.repeats)
        each = 2 if self.widened else 3 if self.op.dtype == "tf32x3" else 1
        return repeats * self.m_tiles * self.n_tiles * each

    @cached_property
    def widened(self) -> bool:
        """Whether machine code converts 8-bit operands to 16 bits before it multiplies them."""
        return self.program.hardware.widens(self.op.dtype)

    @property
    def held_registers(self) -> int:
        """Most registers in which a thread may hold an operand's loaded elements until the products of a step are done.

        For int8, whose windows are copied byte by byte, they and the registers that `counted_registers` returns must fit if a
        multiprocessor runs one block.
        """
        if self.op.dtype == FLOAT8:
            return HELD_FLOAT8
        if self.op.dtype != "int8":
            return HELD_REGISTERS
        most = self.program.hardware.registers_per_unit // self.threads // 8 * 8
        return min(HELD_REGISTERS, max(HELD_FLOAT8, most - counted_registers(self.program)))

    @cached_property
    def named(self) -> int:
        """Number of blocks per multiprocessor in the launch bounds; 0 if the bounds have no such number.

        Without a number, the assembler spills registers of some widened operands in order to make two blocks run at the same
        time.
        """
        blocks, held = self._resident(SPARE_FLOAT8 if self.op.dtype == FLOAT8 else 0), self._held_bytes
        if self._resident(held - HELD_BESIDE) < blocks:
            blocks = self._resident(held)
        return blocks if blocks > 1 or self.widened else 0

    def _resident(self, spare: int) -> int:
        """Return the number of blocks that a multiprocessor runs at the same time.

        A thread takes `spare` registers in addition to those that `counted_registers` returns.
        """
        return resident_blocks(self.program, self.threads, self.shared_bytes, max(0, spare))

    @property
    def _held_bytes(self) -> int:
        """Number of registers in which a thread holds single bytes of int8."""
        tiles = self._tiles if self.op.dtype == "int8" else ()
        return sum(-(-math.prod(tile.shape) // self.threads) for tile in tiles if tile.way == "held" and tile.width == 1)

    @property
    def most_points(self) -> int:
        """Largest number of fragments along the reduction in one unrolled loop body; 0 if one has too many instructions."""
        most = CODE_LIMIT // self.products
        return min(most, WIDENED_POINTS) if self.widened else most

    @cached_property
    def buffered(self) -> bool:
        """Whether the next fragments along the reduction are loaded before the current ones are multiplied.

        Registers cannot be indexed at run time, so the loop must be unrolled fully or by two.
        """
        wanted = self.program.knob("register_buffer") == 2 and self.fragment_points > 1
        return wanted and (self.fragment_points <= self.most_points or self.fragment_points % 2 == 0)

    @cached_property
    def unroll(self) -> int:
        """Number of fragments along the reduction in the unrolled body of the loop; 0 means all of them."""
        if self.buffered:
            return 0 if self.fragment_points <= self.most_points else 2
        chunk = self.register[self.roles.k] // self.depth * self.program.knob("unroll")
        return max(1, min(chunk, self.most_points))

    @cached_property
    def a_tile(self) -> OperandTile:
        """Tile of A in shared memory: rows along m, contiguous along k."""
        return self._tiles[0]

    @cached_property
    def b_tile(self) -> OperandTile:
        """Tile of B in shared memory: rows along k, contiguous along n."""
        return self._tiles[1]

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory of a block."""
        return self.stages * self.stage_bytes

    @cached_property
    def stage_bytes(self) -> int:
        """Number of bytes of one buffer in shared memory: A's tile, then B's."""
        return self.b_tile.offset + self.b_tile.stage

    @cached_property
    def _tiles(self) -> tuple[OperandTile, OperandTile]:
        """Tiles of A and B in shared memory.

        If they exceed a block's shared memory, their rows are neither padded nor swizzled.
        """
        tiles = self._layout(self.program.knob("shared_layout"))
        too_much = self.stages * (tiles[1].offset + tiles[1].stage) > self.program.hardware.shared_per_block
        return self._layout(0) if too_much else tiles

    def _layout(self, layout: int) -> tuple[OperandTile, OperandTile]:
        roles = self.roles
        a = self._operand(roles.a, roles.m, roles.k, layout, 0)
        return a, self._operand(roles.b, roles.k, roles.n, layout, a.stage)

    def _operand(self, read: int, row: int, inner: int, layout: int, offset: int) -> OperandTile:
        moving = self.op.reads[read].axis_strides()
        outer = tuple(a for a in (*self.repeats, *self.places) if moving[a])
        axes = (*outer, row, inner)
        shape = tuple(self.block[a] for a in axes)
        rows = math.prod(shape[:-1])
        pitch = shape[-1] + (UNIT // self.item if layout == 1 and rows > 1 else 0)
        shifts = self._shifts(read, inner)
        width = UNIT // self.item if shifts >= 0 else self._copy_width(read, inner, pitch)
        apart = self.block[shifts] if shifts >= 0 else 1
        trips = -(-math.prod(shape) // width // apart // self.threads) * apart
        way: Way = "direct"
        if self.stages > 1 and not self.turing and width * self.item >= 4 and shifts < 0:
            way = "async"
        elif self.stages > 1 and trips * max(1, width * self.item // 4) <= self.held_registers:
            way = "held"
        swizzle = self._swizzle(read, shape[-1] * self.item) if layout == 2 else None
        return OperandTile(
            read, axes, shape, pitch, width, way, swizzle, offset, -(-rows * pitch * self.item // UNIT) * UNIT, shifts
        )

    def _shifts(self, read: int, inner: int) -> int:
        """Return the window axis that shifts an operand's rows along `inner` by single elements.

        It is -1 if copies cannot handle such shifts. Asynchronous copies need an aligned source and target, but shifted rows of
        elements under 4 bytes are unaligned. A copy can combine two aligned loads if rows of the tensor and of tiles consist of
        whole copies, and a step has all positions of the window along the row.
        """
        access, width = self.op.reads[read], UNIT // self.item
        row = access.coefficients[-1]
        others = [a for a in self.places if row[a] and self.block[a] > 1]
        moved = [d for d, coefficients in enumerate(access.coefficients) if coefficients[inner]]
        if self.item > 2 or self.program.knob("vector") < 4 or len(others) != 1 or moved != [len(access.view) - 1]:
            return -1
        whole = access.view[-1] % width == 0 and self.block[inner] % width == 0 and self.program.grid[others[0]] == 1
        return others[0] if whole and row[inner] == 1 else -1

    def _swizzle(self, read: int, row_bytes: int) -> Swizzle | None:
        """Return the permutation of a row's 16-byte units that puts the lanes of one load on different banks, or None.

        It does so as far as rows are long enough. Lanes of ldmatrix read 8 adjacent rows. Without ldmatrix, lanes read two units
        of 4 rows of B, adjacent rows or every fourth row.
        """
        units = row_bytes // UNIT
        period = math.gcd(units, BANK_UNITS) if row_bytes % UNIT == 0 else 1
        if read == self.roles.b and self.item != 2:
            shift = 2 if self.item == 1 else (BANK_UNITS // period).bit_length() - 1
            return Swizzle(shift, period // 2 - 1, 2) if period > 2 else None
        return Swizzle((BANK_UNITS // period).bit_length() - 1, period - 1, 1) if period > 1 else None

    def _copy_width(self, read: int, inner: int, pitch: int) -> int:
        """Return the number of elements of the widest aligned copy that never crosses the tensor's edge.

        It has at most as many words as knob `vector` allows.
        """
        access = self.op.reads[read]
        strides = access.axis_strides()
        moved = [d for d, row in enumerate(access.coefficients) if row[inner]]
        if strides[inner] != 1 or len(moved) != 1:
            return 1
        d, axes = moved[0], range(len(self.op.axes))
        live = [a for a in axes if a != inner and (self.op.extents[a] > 1 or self.block[a] > 1)]
        base = sum(stride * offset for stride, offset in zip(access.strides(), access.offset, strict=True))
        sizes = [pitch, self.block[inner], upper_bound(self.op, access, d), access.offset[d], base]
        sizes += [strides[a] for a in live] + [access.coefficients[d][a] for a in live]
        sizes += [self.op.extents[inner]] if inner in self.op.reduce else []
        for words in (4, 2, 1):
            width = words * 4 // self.item
            if words <= self.program.knob("vector") and all(size % width == 0 for size in sizes):
                return width
        return 1

    def conditions(self, tile: OperandTile, indices: list[str], without: int = -1) -> list[str]:
        """Return the C conditions under which the element at the values `indices` of all axes belongs to the product.

        Conditions on dimension `without` of the operand's tensor are omitted. Overhanging reduce axes are checked in both
        operands, so that nothing is multiplied by a missing element.
        """
        read = self.op.reads[tile.read]
        conditions = []
        for d, row in enumerate(read.coefficients):
            terms = [(c, indices[a]) for a, c in enumerate(row)]
            conditions += bounds(self, read, d, total(terms, read.offset[d])) if d != without else []
        for a in tile.axes:
            if a in self.op.reduce and self.overhang[a]:
                conditions.append(f"{indices[a]} < {self.op.extents[a]}")
        return list(dict.fromkeys(conditions))


def make_matrix_plan(program: Program) -> MatrixPlan:
    """Plan the kernel of a program with tensor_core=1 (mma.sync). ValueError names the unsupported part."""
    check_program(program, 1)
    op, hw = program.operator, program.hardware
    types = mma_types(hw)
    roles = matrix_axes(op)
    if roles is None or op.dtype not in types:
        raise ValueError(f"knob tensor_core=1: {op} is no product of matrices of {', '.join(types) or 'any type'} on {hw.arch}")
    plan = MatrixPlan(program)
    wanted = {roles.m: INSTRUCTION_ROWS, roles.n: INSTRUCTION_COLUMNS, roles.k: plan.depth}
    for a, axis in enumerate(op.axes):
        tile, size = program.tiles[0][a], wanted.get(a, 1)
        if tile % size or (a in plan.places and tile != 1):
            accepted = "1" if a in plan.places else f"multiples of {size}"
            raise ValueError(f"axis {axis.name}: register tile {tile}; tensor cores take {accepted}")
        if program.vthread[a] != 1:
            raise ValueError(f"axis {axis.name}: {program.vthread[a]} vthreads; tensor cores take 1")
    if program.knob("reduce_threads") != 1:
        raise ValueError(f"knob reduce_threads={program.knob('reduce_threads')}: tensor cores take 1")
    return plan
