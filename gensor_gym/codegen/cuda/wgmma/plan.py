"""Plan of a wgmma kernel, made before any text is written: tiles in shared memory, threads, registers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.cuda.plan import ProductPlan, check_program
from gensor_gym.codegen.cuda.tensor_map import MAX_BOX, TensorMap
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.choices import WGMMA_ROWS, column_step, instruction_k, row_step, tensor_core_choices
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES
from gensor_gym.operators.types import Access

WARPGROUP = 128
"""Threads that issue a wgmma together."""
ATOM_BYTES = 1024
"""Eight rows of 128 bytes: the period of the swizzle and the alignment of tiles."""
PRODUCER_REGISTERS = 40
"""Registers of a thread of the copying warpgroup, as in CUTLASS's kernels with two consumers."""
CONSUMER_REGISTERS = 232
"""Most registers of a consumer's thread: with 40 of a producer, two warpgroups of three fill the register file."""


@dataclass(frozen=True)
class WgmmaPlan(ProductPlan):
    """A matrix product for one warpgroup that copies, the producer, and some that multiply, the consumers.

    A consumer holds `tiles[0]`. The block tile of A lies in shared memory as rows of k. That of B lies there as panels of 64
    columns, each with `step` rows of 128 bytes; every consumer along n has its own panels. All rows are swizzled. If there are
    fewer rows than a wgmma takes, the others are arbitrary memory, and their results are not stored.
    """

    @cached_property
    def column_axes(self) -> tuple[int, ...]:
        """Axes of the columns: n, preceded by the images if a tile has several."""
        axes, strides = [a for a in self.op.spatial if self.block[a] > 1], self.op.reads[self.roles.a].axis_strides()
        return (*(a for a in axes if a not in (self.roles.m, self.roles.n) and not strides[a]), self.roles.n)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a consumer, rows that are there for the instruction's sake among them."""
        return max(WGMMA_ROWS, self.register[self.roles.m]), math.prod(self.register[a] for a in self.column_axes)

    @property
    def step(self) -> int:
        """Elements of the reduction in a stage."""
        return self.block[self.roles.k]

    @property
    def consumers(self) -> tuple[int, int]:
        """Consumers along m and over columns."""
        return self.program.threads[self.roles.m], math.prod(self.program.threads[a] for a in self.column_axes)

    @cached_property
    def num_consumers(self) -> int:
        """Consumers of a block."""
        return math.prod(self.consumers)

    @cached_property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.num_consumers + 1) * WARPGROUP

    @cached_property
    def depth(self) -> int:
        """Elements of the reduction that one wgmma takes."""
        return instruction_k(self.op, self.program.hardware, 2)

    @property
    def b_in_rows(self) -> bool:
        """Whether B lies in shared memory in rows of k, as A does, not in panels of rows of n."""
        return False

    @property
    def column_name(self) -> str:
        """Name of a consumer's column in the kernel's text."""
        return self.names[self.roles.n] if len(self.column_axes) == 1 else "column"

    @property
    def columns_text(self) -> str:
        """The constant that holds a consumer's columns."""
        return f"REG_{self.column_name.upper()}" if len(self.column_axes) == 1 else "COLUMNS"

    @property
    def b_bytes(self) -> int:
        """Shared memory of one consumer's columns of B in a stage."""
        return self.panels * self.panel_bytes

    @property
    def b_point_bytes(self) -> int:
        """Bytes between the parts of B that successive wgmma along the reduction read."""
        return self.depth * SWIZZLE_BYTES

    @cached_property
    def panel(self) -> int:
        """Columns in a panel of B: as many as a swizzled row has."""
        return SWIZZLE_BYTES // self.item

    @cached_property
    def panels(self) -> int:
        """Panels of one consumer's columns."""
        return -(-self.tile[1] // self.panel)

    @cached_property
    def box_rows(self) -> int:
        """Rows of A in one copy: the most that divide the block tile and that a box may have."""
        rows = self.block[self.roles.m]
        return min(rows, next(found for found in range(MAX_BOX, 0, -WGMMA_ROWS) if rows % found == 0 or found == WGMMA_ROWS))

    @cached_property
    def a_bytes(self) -> int:
        """Shared memory of A in a stage."""
        return self.consumers[0] * self.tile[0] * SWIZZLE_BYTES

    @property
    def copied_bytes(self) -> int:
        """Bytes that the copies of a stage bring."""
        return self.stage_bytes - self.a_bytes + self.block[self.roles.m] * SWIZZLE_BYTES

    @cached_property
    def panel_bytes(self) -> int:
        """Shared memory of a panel of B."""
        return self.step * SWIZZLE_BYTES

    @cached_property
    def stage_bytes(self) -> int:
        """Shared memory of A and B in a stage."""
        return self.a_bytes + self.consumers[1] * self.b_bytes

    @cached_property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: stages, barriers, and padding to align the first stage."""
        return ATOM_BYTES + self.stages * (self.stage_bytes + self.barrier_bytes)

    @property
    def barrier_bytes(self) -> int:
        """Bytes of a stage's barriers: one for data that has arrived, one for a free buffer."""
        return 16

    @cached_property
    def consumer_registers(self) -> int:
        """Registers that a consumer's thread requests once the producer has released its own; 0 without a gain.

        A block's registers are shared out in eights, evenly at first.
        """
        even = min(255, self.program.hardware.registers_per_unit // (self.threads * self.resident) // 8 * 8)
        rest = even * (self.num_consumers + 1) - PRODUCER_REGISTERS
        asked = min(CONSUMER_REGISTERS, rest // self.num_consumers // 8 * 8)
        return asked if asked > even > PRODUCER_REGISTERS else 0

    @property
    def cluster(self) -> int:
        """Blocks of a cluster: neighbours along m, which share the tile of B."""
        return self.program.knob("cluster")

    @property
    def together(self) -> tuple[int, ...]:
        """Block tiles that a cluster takes together, [A]."""
        return tuple(self.cluster if a == self.roles.m else 1 for a in range(len(self.op.axes)))

    @property
    def work(self) -> int:
        """Tiles of the output (those of a cluster as one), times parts of the reduction."""
        return self.tiles * self.slices

    @property
    def persistent(self) -> bool:
        """Whether blocks stay and take one tile after the other: where there are more than can live at a time."""
        return self.program.knob("persistent") >= 1 and self.work > self.living and not self.shares_steps

    @property
    def shares_steps(self) -> bool:
        """Whether blocks take equal shares of all steps of all tiles: where shares of whole tiles are not equal."""
        return self.program.knob("persistent") == 2 and self.steps > 1 and self.tiles % self.shares > 0

    @property
    def shares(self) -> int:
        """Clusters that share out all steps: all that live at a time, each with a step at least."""
        return min(self.living, self.tiles * self.steps)

    @property
    def cleared_bytes(self) -> int:
        """A counter for each tile that groups share, by the group that begins it, and every warp of its consumers."""
        return aligned(self.shares * self.cluster * self.num_consumers * 16) if self.shares_steps else 0

    @property
    def workspace_bytes(self) -> int:
        """Workspace: parts of a split reduction, or counters and, of every group, the tile that it ends and that it begins."""
        if not self.shares_steps:
            return super().workspace_bytes
        return self.cleared_bytes + 2 * self.shares * self.cluster * self.num_consumers * 4 * math.prod(self.tile)

    @property
    def living(self) -> int:
        """Clusters (single blocks are clusters of one) that the device holds at a time, at least 1."""
        return max(1, self.program.hardware.units * self.resident // self.cluster)

    @property
    def blocks(self) -> int:
        """Blocks of the launch, whole clusters."""
        if self.shares_steps:
            return self.shares * self.cluster
        return (self.living if self.persistent else self.work) * self.cluster

    @property
    def arch(self) -> str:
        """Architecture with the instructions that later ones do not have."""
        return f"{self.program.hardware.arch}a"

    @property
    def mapped(self) -> tuple[str, ...]:
        """Names of the tensors that are A and B."""
        return self.op.reads[self.roles.a].tensor.name, self.op.reads[self.roles.b].tensor.name

    @property
    def maps(self) -> tuple[TensorMap, ...]:
        """Tensor maps of A and B; a block of a cluster copies its share of the rows of a panel of B."""
        left, right = self.op.reads[self.roles.a], self.op.reads[self.roles.b]
        return self._map(left, (self.box_rows, self.step)), self._map(right, (self.step // self.cluster, self.panel))

    def _map(self, read: Access, box: tuple[int, int]) -> TensorMap:
        """Boxes of the last two dimensions of an operand, one matrix of a batch at a time."""
        shape, dtype = read.view, read.tensor.dtype
        pitches = tuple(self.item * math.prod(shape[d + 1 :]) for d in range(len(shape) - 1))
        lengths = (1,) * (len(shape) - 2) + box
        return TensorMap(self.op.inputs.index(read.tensor), dtype, shape, pitches, lengths, SWIZZLE_BYTES)


@dataclass(frozen=True)
class ColumnRowsPlan(WgmmaPlan):
    """A product whose columns of B an earlier kernel of the program laid out in the workspace as rows of k."""

    @property
    def b_in_rows(self) -> bool:
        """True, as for A."""
        return True

    @property
    def b_bytes(self) -> int:
        """Shared memory of one consumer's columns in a stage."""
        return self.tile[1] * SWIZZLE_BYTES

    @property
    def b_point_bytes(self) -> int:
        """A wgmma takes the next elements of the same rows."""
        return self.depth * self.item


def aligned(offset: int) -> int:
    """The next aligned offset in the workspace."""
    return -(-offset // ATOM_BYTES) * ATOM_BYTES


def check_wgmma(plan: WgmmaPlan) -> None:
    """ValueError names an operator, knob or tile that no kernel of any plan supports."""
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
    """ValueError with the words of the first fault that is true."""
    for broken, words in faults:
        if broken:
            raise ValueError(f"wgmma kernel of {plan.op}: {words}")


def make_wgmma_plan(program: Program) -> WgmmaPlan:
    """The plan of a product with tensor_core=2 whose operands are read in their own layout.

    ValueError names the unsupported part.
    """
    plan = WgmmaPlan(program)
    check_wgmma(plan)
    check_batch(plan)
    return plan


def check_batch(plan: WgmmaPlan) -> None:
    """ValueError if a block tile has several matrices of a batch, but for whole panels of several images."""
    others = [a for a in plan.op.spatial if a != plan.roles.m and a not in plan.column_axes]
    pixels, several = plan.register[plan.roles.n], len(plan.column_axes) > 1
    require(plan, (
        (any(plan.block[a] != 1 for a in others), f"block tile {plan.block}: one matrix of a batch"),
        (several and pixels % plan.panel, f"{pixels} pixels of each of several images: multiples of {plan.panel}"),
    ))  # fmt: skip
