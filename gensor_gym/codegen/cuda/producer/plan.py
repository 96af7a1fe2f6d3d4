"""Planning of a float32 product whose tiles a producer copies through TMA: the threads' tiles, the ring, registers.

TMA cannot transpose. So A[m, k] is in shared memory as rows of k, and a thread reads `width` elements of a row at a time. For 4
reduction points of 8 x 8 sums these are 8 loads of A and 8 of B, as many as from a tile with rows of m. Single elements would be
32 loads of A, 9 % more instructions. The elements of a row are needed until the last of the points, so they take
`width` registers a row. After the last point's multiply-adds of a row, its registers get the next elements. These are needed
only after the multiply-adds of all other rows, so no second set of registers is needed.

A load of 16 bytes that all lanes of a warp make at one address, or at addresses in different banks, costs one wavefront. If lanes
of a warp have different rows, the rows are adjacent and swizzled: units of 16 bytes of 8 adjacent rows are in different banks.
Rows of B[k, n] are contiguous along n. Lanes read adjacent units of 16 bytes, also without padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from gensor_gym.codegen.cuda.plan import WARP, ProductPlan, check_program
from gensor_gym.codegen.cuda.simt.lanes import patch_of
from gensor_gym.codegen.cuda.tensor_map import MAX_BOX, UNIT, TensorMap
from gensor_gym.codegen.cuda.wgmma.fused import with_fused_columns
from gensor_gym.codegen.cuda.wgmma.plan import (
    ATOM_BYTES,
    BARRIER_BYTES,
    PRODUCER_REGISTERS,
    WARPGROUP,
    aligned,
    requested_registers,
)
from gensor_gym.codegen.cuda.wgmma.ring import with_deepest_ring
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.residency import counted_registers, resident_blocks
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES, lies_as_product
from gensor_gym.graph.structure import capability, is_staged, matrix_axes
from gensor_gym.hardware.occupancy import PARTITIONS
from gensor_gym.operators.types import Access

CAPABILITY = 90
"""Compute capability 9.0 has TMA, and warpgroups that exchange registers (`setmaxnreg`)."""
ITEM = 4
"""Bytes of an element."""
LANES = 4
"""Number of float32 elements in the widest load, 16 bytes."""
WARPS = 8
"""Number of computing warps of a multiprocessor, two for each scheduler, so that one multiplies while the other one waits."""
OTHER_REGISTERS = 24
"""Registers of a computing thread besides sums and operands. With them, NVRTC 13.0 spills none (`test_codegen_producer.py`)."""


@dataclass(frozen=True)
class ProducerPlan(ProductPlan):
    """Plan of a float32 product: the first threads of a block compute, a warp or warpgroup after them copies (the producer).

    `width` is the number of elements of A that a thread reads at once.
    """

    width: int = LANES

    @cached_property
    def computing(self) -> ProductPlan:
        """Plan of the threads that compute, without the producer."""
        return ProductPlan(self.program)

    @cached_property
    def warpgroups(self) -> int:
        """Number of computing warpgroups if the computing threads are whole ones, else 0. Only these can exchange registers."""
        return self.computing.threads // WARPGROUP if self.computing.threads % WARPGROUP == 0 else 0

    @cached_property
    def threads(self) -> int:
        """Number of threads of a block, including the producer's."""
        return self.computing.threads + (WARPGROUP if self.warpgroups else WARP)

    @property
    def step(self) -> int:
        """Number of elements along the reduction that one stage of the ring holds."""
        return self.block[self.roles.k]

    @cached_property
    def warp_rows(self) -> int:
        """Most rows that lanes of a warp compute at the same place of their tiles."""
        patch, across = patch_of(self.computing), self.program.threads[self.roles.n]
        begun = 0 if WARP % across == 0 else 1 if across % WARP == 0 else 2
        return min(patch.rows if patch else WARP // across + begun, self.program.threads[self.roles.m])

    @property
    def swizzle(self) -> int:
        """Number of bytes of a row of A whose units of 16 bytes are permuted.

        The result is 0 if lanes of a warp read one row, or adjacent rows that together have at most one unit in every bank.
        """
        row = self.step * ITEM
        return row if row > UNIT and self.warp_rows > 1 and self.warp_rows * row > SWIZZLE_BYTES else 0

    @property
    def box_rows(self) -> int:
        """Number of rows of A in one copy: all rows of the block tile, or as many as a box takes."""
        return min(self.block[self.roles.m], MAX_BOX)

    @property
    def copied_bytes(self) -> int:
        """Number of bytes that the copies of a stage write."""
        rows = -(-self.block[self.roles.m] // self.box_rows) * self.box_rows
        return (rows + self.block[self.roles.n]) * self.step * ITEM

    @property
    def a_bytes(self) -> int:
        """Bytes of shared memory for A in a stage, before B."""
        return aligned(self.copied_bytes - self.block[self.roles.n] * self.step * ITEM)

    @property
    def stage_bytes(self) -> int:
        """Bytes of shared memory for A and B in a stage."""
        return self.a_bytes + aligned(self.block[self.roles.n] * self.step * ITEM)

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory of a block: stages, barriers, and padding to align the first stage."""
        return ATOM_BYTES + self.stages * (self.stage_bytes + 2 * BARRIER_BYTES)

    @property
    def wanted_registers(self) -> int:
        """Number of registers that a computing thread needs."""
        rows, columns = self.register[self.roles.m], self.register[self.roles.n]
        return rows * columns + rows * self.width + 2 * columns + OTHER_REGISTERS

    @cached_property
    def resident(self) -> int:
        """Number of blocks that a multiprocessor runs at the same time, at least 1.

        A thread takes the mean of the registers of computing threads and the producer's, if they exchange registers.
        """
        taken = self.wanted_registers
        if self.warpgroups:
            taken = -(-(taken * self.warpgroups + PRODUCER_REGISTERS) // (self.warpgroups + 1))
        return resident_blocks(self.program, self.threads, self.shared_bytes, taken - counted_registers(self.program))

    @property
    def consumer_registers(self) -> int:
        """Number of registers that a computing thread requests after the producer has released some; 0 if it gains none."""
        return requested_registers(self.program.hardware, self.warpgroups, self.resident) if self.warpgroups else 0

    @property
    def fits(self) -> bool:
        """Whether whole warps compute, a block fits the machine, and a computing thread gets the registers that it needs.

        All rows of a thread must be permuted alike.
        """
        hw, alike = self.program.hardware, self.swizzle == 0 or self.program.threads[self.roles.m] % (SWIZZLE_BYTES // UNIT) == 0
        if self.computing.threads % WARP or self.threads > hw.threads_per_block or self.shared_bytes > hw.shared_per_block:
            return False
        warps = -(-self.threads * self.resident // (WARP * PARTITIONS)) * PARTITIONS
        even = min(hw.registers_per_thread, hw.registers_per_unit // (WARP * warps) // 8 * 8)
        return alike and self.step % self.width == 0 and self.wanted_registers <= (self.consumer_registers or even)

    @property
    def computing_warps(self) -> int:
        """Number of computing warps that a multiprocessor runs at the same time."""
        return self.computing.threads // WARP * self.resident

    @property
    def loads(self) -> float:
        """Number of loads from shared memory for each multiply-add."""
        rows, columns = self.register[self.roles.m], self.register[self.roles.n]
        return 1 / (self.width * columns) + 1 / (math.gcd(columns, LANES) * rows)

    @property
    def persistent(self) -> bool:
        """Whether a block computes several tiles one after another, because there are more tiles than blocks that run at once."""
        return self.slices == 1 and self.tiles > self.living

    @property
    def living(self) -> int:
        """Number of blocks that the device runs at a time."""
        return self.program.hardware.units * self.resident

    @property
    def blocks(self) -> int:
        """Number of blocks of the launch."""
        return self.living if self.persistent else super().blocks

    @property
    def mapped(self) -> tuple[str, ...]:
        """Names of the tensors A and B, which are copied with tensor maps."""
        return self.op.reads[self.roles.a].tensor.name, self.op.reads[self.roles.b].tensor.name

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps of A, in boxes of rows of k, and of B, in boxes of rows of n."""
        left, right = self.op.reads[self.roles.a], self.op.reads[self.roles.b]
        rows, columns = (self.box_rows, self.step), (self.step, self.block[self.roles.n])
        return self._map(left, rows, self.swizzle), self._map(right, columns, 0)

    def _map(self, read: Access, box: tuple[int, int], swizzle: int) -> TensorMap:
        pitches = tuple(ITEM * math.prod(read.view[d + 1 :]) for d in range(len(read.view) - 1))
        lengths = (1,) * (len(read.view) - 2) + box
        return TensorMap(self.op.inputs.index(read.tensor), "float32", read.view, pitches, lengths, swizzle)

    @property
    def arch(self) -> str:
        """Architecture with the suffix `a`, because later architectures lack the exchange of registers."""
        return f"{self.program.hardware.arch}a"


def producer_plan(program: Program) -> ProducerPlan | None:
    """Plan the kernel of a program with a producer; None for a program without it.

    It is for float32 products on CUDA cores of sm_90 whose rows are multiples of 16 bytes apart. Tiles are those of the program,
    except that a thread may compute twice the columns, and that a step has at most 32 points. The ring has as many
    stages as fit while as many blocks run at a time as with the program's number of stages.
    """
    op, hw = program.operator, program.hardware
    if op.dtype != "float32" or capability(hw) != CAPABILITY or matrix_axes(op) is None or not lies_as_product(op):
        return None
    check_program(program, 0)
    if program.knob("reduce_threads") > 1 or not all(is_staged(op, read) for read in op.reads):
        return None
    given = with_fused_columns(program)
    roles = matrix_axes(given.operator)
    assert roles is not None, "fused columns stay a product"
    others = [a for a in given.operator.spatial if a not in (roles.m, roles.n)]
    columns = given.tiles[1][roles.n]
    if any(given.tiles[1][a] > 1 for a in others) or columns % LANES or columns > MAX_BOX:
        return None
    return min(_plans(given), key=lambda plan: (-min(WARPS, plan.computing_warps), plan.loads), default=None)


def _plans(program: Program) -> Iterator[ProducerPlan]:
    """Yield the plans of threads' tiles and steps of such a kernel, with two stages."""
    for tiled, width in product(_tilings(program), (LANES, LANES // 2)):
        plan = ProducerPlan(tiled.with_knobs(stages=2, shared_layout=0, convolution=0), width=width)
        if plan.fits:
            yield with_deepest_ring(plan, max(2, program.knob("stages")))


def _tilings(program: Program) -> Iterator[Program]:
    roles = matrix_axes(program.operator)
    assert roles is not None, "checked before"
    for times, step in product((1, 2), (32, 16, 8, 4)):
        inner, outer, virtual = [*program.tiles[0]], [*program.tiles[1]], [1] * len(program.vthread)
        inner[roles.n] *= times
        if outer[roles.k] % step or outer[roles.n] % inner[roles.n]:
            continue
        inner[roles.k], outer[roles.k] = math.gcd(inner[roles.k], step), step
        virtual[roles.n] = inner[roles.n] // math.gcd(inner[roles.n], LANES)
        tiled = replace(program, tiles=(tuple(inner), tuple(outer)), vthread=tuple(virtual))
        virtual[roles.m] = inner[roles.m] if ProducerPlan(tiled).warp_rows > 1 else 1
        yield replace(tiled, vthread=tuple(virtual))
