"""Planning of a wgmma kernel, before any text is written: tiles in shared memory, threads, registers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.cuda.plan import ProductPlan, check_program
from gensor_gym.codegen.cuda.tensor_map import MAX_BOX, TensorMap
from gensor_gym.codegen.cuda.wgmma.boxes.buffers import Boxes
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.choices import WGMMA_ROWS, column_step, instruction_k, row_step, tensor_core_choices
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Access

WARPGROUP = 128
"""Number of threads that issue a wgmma together."""
ALTERNATING = 2
"""Number of consumers that take turns (ping-pong)."""
ATOM_BYTES = 1024
"""Bytes of eight rows of 128 bytes: the period of the swizzle and the alignment of tiles."""
BARRIER_BYTES = 8
"""Bytes of a barrier in shared memory."""
PRODUCER_REGISTERS = 40
"""Registers of a thread of the copying warpgroup, as in CUTLASS's kernels with two consumers."""
CONSUMER_REGISTERS = 232
"""Limit on the registers of a consumer's thread: two consumers and a producer with 40 per thread fill the register file."""


@dataclass(frozen=True)
class WgmmaPlan(ProductPlan):
    """Plan of a matrix product with wgmma: one warpgroup copies (the producer), the others multiply (the consumers).

    A consumer computes a tile `tiles[0]`. The block tile of A is in shared memory as rows of k. The block tile of B is there as
    panels of 64 columns, each with `step` rows of 128 bytes; every consumer along n has its own panels. All rows are swizzled. If
    a tile has fewer rows than a wgmma takes, the missing rows are arbitrary memory, and their results are not stored.
    """

    alternates: bool = False
    """Whether two consumers take turns at whole block tiles (`pingpong.py`), instead of sharing each block tile."""
    boxes: Boxes | None = None
    """Buffers through which TMA stores the output (`boxes/`); None if threads store it from registers."""

    @cached_property
    def column_axes(self) -> tuple[int, ...]:
        """Axes that the columns of the product run over: n, preceded by the axis of images if a tile has several images."""
        axes, strides = [a for a in self.op.spatial if self.block[a] > 1], self.op.reads[self.roles.a].axis_strides()
        return (*(a for a in axes if a not in (self.roles.m, self.roles.n) and not strides[a]), self.roles.n)

    @property
    def tile(self) -> tuple[int, int]:
        """(rows, columns) of the tile that one consumer computes.

        Rows are at least those of a wgmma, even if not all are used.
        """
        return max(WGMMA_ROWS, self.register[self.roles.m]), math.prod(self.register[a] for a in self.column_axes)

    @property
    def step(self) -> int:
        """Number of elements along the reduction that one stage of the ring holds."""
        return self.block[self.roles.k]

    @property
    def consumers(self) -> tuple[int, int]:
        """Number of consumers (multiplying warpgroups) along m and along columns."""
        return self.program.threads[self.roles.m], math.prod(self.program.threads[a] for a in self.column_axes)

    @cached_property
    def tile_consumers(self) -> int:
        """Number of consumers (multiplying warpgroups) that compute a block tile together."""
        return math.prod(self.consumers)

    @cached_property
    def num_consumers(self) -> int:
        """Number of consumers (multiplying warpgroups) of a block."""
        return self.tile_consumers * (ALTERNATING if self.alternates else 1)

    @cached_property
    def threads(self) -> int:
        """Number of threads of a block."""
        return (self.num_consumers + 1) * WARPGROUP

    @cached_property
    def depth(self) -> int:
        """Number of elements along the reduction that one wgmma multiplies."""
        return instruction_k(self.op, self.program.hardware, 2)

    @property
    def b_in_rows(self) -> bool:
        """Whether B is in shared memory in rows of k, like A, and not in panels of rows of n."""
        return False

    @property
    def column_name(self) -> str:
        """Name of a consumer's columns in the kernel's text: the axis n, or `column` if they run over several axes."""
        return self.names[self.roles.n] if len(self.column_axes) == 1 else "column"

    @property
    def columns_text(self) -> str:
        """Name of the C constant with a consumer's number of columns."""
        return f"REG_{self.column_name.upper()}" if len(self.column_axes) == 1 else "COLUMNS"

    @property
    def b_bytes(self) -> int:
        """Number of bytes of shared memory for one consumer's columns of B in a stage."""
        return self.panels * self.panel_bytes

    @property
    def b_point_bytes(self) -> int:
        """Distance in bytes between the parts of B that successive wgmma instructions along the reduction read."""
        return self.depth * SWIZZLE_BYTES

    @cached_property
    def panel(self) -> int:
        """Number of columns in a panel of B, which is the number of elements in one swizzled row."""
        return SWIZZLE_BYTES // self.item

    @cached_property
    def panels(self) -> int:
        """Number of panels for one consumer's columns."""
        return -(-self.tile[1] // self.panel)

    @cached_property
    def box_rows(self) -> int:
        """Number of rows of A in one copy.

        It is the largest number within a box's limit that divides the block tile's rows.
        """
        rows = self.block[self.roles.m]
        return min(rows, next(found for found in range(MAX_BOX, 0, -WGMMA_ROWS) if rows % found == 0 or found == WGMMA_ROWS))

    @cached_property
    def a_bytes(self) -> int:
        """Bytes of shared memory for A in a stage."""
        return self.consumers[0] * self.tile[0] * SWIZZLE_BYTES

    @property
    def copied_bytes(self) -> int:
        """Number of bytes that the copies of a stage write.

        These are all bytes of the stage, except rows of A that a wgmma takes in excess of the block tile.
        """
        return self.stage_bytes - self.a_bytes + self.block[self.roles.m] * SWIZZLE_BYTES

    @cached_property
    def panel_bytes(self) -> int:
        """Bytes of shared memory for a panel of B."""
        return self.step * SWIZZLE_BYTES

    @cached_property
    def stage_bytes(self) -> int:
        """Bytes of shared memory for A and B in a stage."""
        return self.a_bytes + self.consumers[1] * self.b_bytes

    @cached_property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory of a block: stages, barriers, buffers of results, padding to align the first stage."""
        more = ALTERNATING * BARRIER_BYTES if self.alternates else 0
        more += self.boxes.shared_bytes if self.boxes else 0
        return ATOM_BYTES + self.stages * (self.stage_bytes + self.barrier_bytes) + more

    @property
    def barrier_bytes(self) -> int:
        """Number of bytes of a stage's barriers: one for arrived data, one for a free buffer."""
        return 2 * BARRIER_BYTES

    @cached_property
    def consumer_registers(self) -> int:
        """Number of registers that a consumer's thread requests after the producer has released some; 0 if it gains none."""
        return requested_registers(self.program.hardware, self.num_consumers, self.resident)

    @property
    def cluster(self) -> int:
        """Number of blocks in a cluster.

        They compute adjacent tiles along m, and share the tile of B.
        """
        return self.program.knob("cluster")

    @property
    def together(self) -> tuple[int, ...]:
        """Number of block tiles along every axis that a cluster computes together, [A]."""
        return tuple(self.cluster if a == self.roles.m else 1 for a in range(len(self.op.axes)))

    @property
    def work(self) -> int:
        """Number of tiles of the output times slices of the reduction; the tiles of a cluster count as one."""
        return self.tiles * self.slices

    @property
    def persistent(self) -> bool:
        """Whether a block computes several tiles one after another, because there are more tiles than blocks that run at once."""
        stays = self.alternates or self.program.knob("persistent") >= 1
        return stays and self.work > self.living and not self.shares_steps

    @property
    def shares_steps(self) -> bool:
        """Whether each block computes an equal share of all reduction steps of all tiles.

        They do if knob `persistent` is 2 and whole tiles cannot be shared out equally, unless consumers take turns.
        """
        return not self.alternates and self.program.knob("persistent") == 2 and self.steps > 1 and self.tiles % self.shares > 0

    @property
    def shares(self) -> int:
        """Number of clusters that share out all reduction steps: as many as run at a time, but at most one per step."""
        return min(self.living, self.tiles * self.steps)

    @property
    def cleared_bytes(self) -> int:
        """Number of bytes of the counters of shared tiles, if blocks share out reduction steps; else 0.

        Each share that may begin a shared tile has one counter for each warp of the consumers of each block of its cluster.
        """
        return aligned(self.shares * self.cluster * self.num_consumers * 16) if self.shares_steps else 0

    @property
    def workspace_bytes(self) -> int:
        """Number of bytes of the workspace.

        It has the partial results of a split reduction, or the counters and partial results of shared tiles. Every share has
        partial results for two tiles: the tile that it ends and the tile that it begins.
        """
        if not self.shares_steps:
            return super().workspace_bytes
        return self.cleared_bytes + 2 * self.shares * self.cluster * self.num_consumers * 4 * math.prod(self.tile)

    @property
    def living(self) -> int:
        """Number of clusters that the device runs at a time, at least 1. Single blocks are clusters of one."""
        return max(1, self.program.hardware.units * self.resident // self.cluster)

    @property
    def blocks(self) -> int:
        """Number of blocks of the launch, in whole clusters."""
        if self.shares_steps:
            return self.shares * self.cluster
        return (self.living if self.persistent else self.work) * self.cluster

    @property
    def arch(self) -> str:
        """Architecture with the suffix `a`, such as `sm_90a`, because later architectures lack some of its instructions."""
        return f"{self.program.hardware.arch}a"

    @property
    def mapped(self) -> tuple[str, ...]:
        """Names of the tensors A and B, which are copied with tensor maps, and of the output if it is stored with one."""
        operands = self.op.reads[self.roles.a].tensor.name, self.op.reads[self.roles.b].tensor.name
        return (*operands, self.boxes.name) if self.boxes else operands

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps of A and B, and of the output if it is stored with one."""
        return (*self.operand_maps, self.boxes.tensor_map) if self.boxes else self.operand_maps

    @property
    def operand_maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps of A and B. In a cluster, a block copies its share of the rows of each of B's panels."""
        left, right = self.op.reads[self.roles.a], self.op.reads[self.roles.b]
        return self._map(left, (self.box_rows, self.step)), self._map(right, (self.step // self.cluster, self.panel))

    def _map(self, read: Access, box: tuple[int, int]) -> TensorMap:
        shape, dtype = read.view, read.tensor.dtype
        pitches = tuple(self.item * math.prod(shape[d + 1 :]) for d in range(len(shape) - 1))
        lengths = (1,) * (len(shape) - 2) + box
        return TensorMap(self.op.inputs.index(read.tensor), dtype, shape, pitches, lengths, SWIZZLE_BYTES)


@dataclass(frozen=True)
class ColumnRowsPlan(WgmmaPlan):
    """Plan of a matrix product whose operand B is in shared memory as rows of k.

    An earlier kernel of the program may have written B that way.
    """

    @property
    def b_in_rows(self) -> bool:
        """True: B is in shared memory in rows of k, like A."""
        return True

    @property
    def b_bytes(self) -> int:
        """Number of bytes of shared memory for one consumer's columns of B in a stage."""
        return self.tile[1] * SWIZZLE_BYTES

    @property
    def b_point_bytes(self) -> int:
        """Distance in bytes between the parts of B that successive wgmma instructions read: later elements of the same rows."""
        return self.depth * self.item


def requested_registers(hw: Hardware, consumers: int, resident: int) -> int:
    """Return the registers that a consumer's thread requests after the producer has released some; 0 if it gains none.

    Consumers and the producer are warpgroups. At first, a block's registers are divided evenly, in multiples of eight per thread.
    """
    even = min(255, hw.registers_per_unit // ((consumers + 1) * WARPGROUP * resident) // 8 * 8)
    rest = even * (consumers + 1) - PRODUCER_REGISTERS
    asked = min(CONSUMER_REGISTERS, rest // consumers // 8 * 8)
    return asked if asked > even > PRODUCER_REGISTERS else 0


def aligned(offset: int) -> int:
    """Round `offset` up to a multiple of `ATOM_BYTES`."""
    return -(-offset // ATOM_BYTES) * ATOM_BYTES


def check_wgmma(plan: WgmmaPlan) -> None:
    """Check the limits that all wgmma plans set to the operator, the knobs and the tiles.

    ValueError names the unsupported part.
    """
    check_program(plan.program, 2)
    program, op, hw = plan.program, plan.op, plan.program.hardware
    choices = tensor_core_choices(op, hw)
    if 2 not in choices:
        raise ValueError(f"knob tensor_core=2: {op} on {hw.name} takes {choices}")
    if program.knob("reduce_threads") != 1:
        raise ValueError(f"knob reduce_threads={program.knob('reduce_threads')}: tensor cores take 1")
    roles, (_, columns), across, down = plan.roles, plan.tile, column_step(op), row_step(op)
    rows, together = plan.register[roles.m], plan.block[roles.m]
    require(plan, (
        (program.knob("persistent") == 2 and plan.slices > 1, "persistent=2 shares out all steps: split_k is 1"),
        (max(program.vthread) > 1, f"virtual threads {program.vthread}: 1 on every axis"),
        (rows % down, f"{rows} rows of a consumer: multiples of {down}"),
        (down < WGMMA_ROWS and together > rows, f"{together} rows of a block: {rows}, one consumer's, where there are under 64"),
        (columns % across or columns > 256, f"{columns} columns of a consumer: multiples of {across} up to 256"),
        (plan.step != plan.panel, f"steps of {plan.step} along the reduction: {plan.panel}, one swizzled row"),
        (plan.register[roles.k] % plan.depth, f"chunks of {plan.register[roles.k]}: multiples of {plan.depth}"),
        (program.grid[roles.m] < plan.cluster, f"{program.grid[roles.m]} tiles along m: a cluster takes {plan.cluster}"),
        (plan.threads > hw.threads_per_block, f"{plan.threads} threads: at most {hw.threads_per_block}"),
        (plan.shared_bytes > hw.shared_per_block, f"{plan.shared_bytes} bytes of shared memory: at most {hw.shared_per_block}"),
    ))  # fmt: skip


def require(plan: WgmmaPlan, faults: tuple[tuple[object, str], ...]) -> None:
    """Check (fault, text) pairs. ValueError with the text of the first pair whose fault is true."""
    for broken, words in faults:
        if broken:
            raise ValueError(f"wgmma kernel of {plan.op}: {words}")


def make_wgmma_plan(program: Program, alternates: bool = False) -> WgmmaPlan:
    """Plan a matrix product with tensor_core=2 (wgmma) that reads its operands in their own layout.

    ValueError names the unsupported part.
    """
    plan = WgmmaPlan(program, alternates=alternates)
    check_wgmma(plan)
    check_batch(plan)
    return plan


def check_batch(plan: WgmmaPlan) -> None:
    """Check that a block tile is in one matrix of a batch, or has whole panels of several images; ValueError if not."""
    others = [a for a in plan.op.spatial if a != plan.roles.m and a not in plan.column_axes]
    pixels, several = plan.register[plan.roles.n], len(plan.column_axes) > 1
    require(plan, (
        (any(plan.block[a] != 1 for a in others), f"block tile {plan.block}: one matrix of a batch"),
        (several and pixels % plan.panel, f"{pixels} pixels of each of several images: multiples of {plan.panel}"),
    ))  # fmt: skip
