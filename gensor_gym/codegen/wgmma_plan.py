"""What a wgmma kernel of a program does, decided before any text is written: tiles in shared memory, threads, registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gensor_gym.codegen.cuda_plan import Plan
from gensor_gym.codegen.program import Program
from gensor_gym.codegen.tensor_map import MAX_BOX, TensorMap
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.structure import SWIZZLE_BYTES, MatrixAxes, instruction_k, matrix_axes, tensor_core_choices
from gensor_gym.hardware.occupancy import blocks_per_unit
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

WARPGROUP = 128
"""Threads that issue a wgmma together."""
ROWS = 64
"""Rows of one wgmma."""
ATOM_BYTES = 1024
"""Eight rows of 128 bytes: what the swizzle repeats after, and what tiles are aligned to."""
BARRIER_BYTES = 16
"""Of a stage: one barrier for data that came, one for room that is free."""
PRODUCER_REGISTERS = 40
"""What a thread of the copying warpgroup keeps, as in CUTLASS's kernels with two consumers."""
CONSUMER_REGISTERS = 232
"""What a consumer's thread takes at most: with 40 of a producer, two warpgroups of three fill the register file."""


@dataclass(frozen=True)
class WgmmaPlan:
    """A matrix product and what follows from its tiles for one producer warpgroup and some consumers.

    The block tile of A lies in shared memory as rows of k. That of B as panels of 64 columns, each of which is `step`
    rows of 128 bytes; every consumer along n has panels of its own. All rows are swizzled.
    """

    program: Program
    roles: MatrixAxes

    @property
    def op(self) -> Operator:
        """The operator."""
        return self.program.operator

    @cached_property
    def base(self) -> Plan:
        """Tiles, steps and slices, as for every CUDA kernel."""
        return Plan(self.program)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a consumer."""
        return self.program.tiles[0][self.roles.m], self.program.tiles[0][self.roles.n]

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.program.tiles[1][self.roles.m], self.program.tiles[1][self.roles.n]

    @property
    def step(self) -> int:
        """Elements of the reduction in a stage."""
        return self.program.tiles[1][self.roles.k]

    @property
    def consumers(self) -> tuple[int, int]:
        """Consumer warpgroups along m and n."""
        return self.block[0] // self.tile[0], self.block[1] // self.tile[1]

    @cached_property
    def num_consumers(self) -> int:
        """Consumer warpgroups."""
        return self.consumers[0] * self.consumers[1]

    @cached_property
    def threads(self) -> int:
        """Threads of a block: the producer's and the consumers'."""
        return (self.num_consumers + 1) * WARPGROUP

    @cached_property
    def instruction_rows(self) -> int:
        """Row blocks of 64 that a consumer has accumulators of."""
        return self.tile[0] // ROWS

    @cached_property
    def instruction_k(self) -> int:
        """Elements of the reduction that one wgmma takes."""
        return instruction_k(self.op, self.program.hardware, 2)

    @cached_property
    def item_bytes(self) -> int:
        """Bytes of an element of A and B."""
        return ITEM_BYTES[self.op.dtype]

    @cached_property
    def panel(self) -> int:
        """Columns in a panel of B: as many as a swizzled row has."""
        return SWIZZLE_BYTES // self.item_bytes

    @cached_property
    def panels(self) -> int:
        """Panels of one consumer's columns."""
        return -(-self.tile[1] // self.panel)

    @cached_property
    def box_rows(self) -> int:
        """Rows of A in one copy: what divides the block tile and a box may have."""
        return next(rows for rows in range(MAX_BOX, 0, -ROWS) if self.block[0] % rows == 0)

    @cached_property
    def a_bytes(self) -> int:
        """Shared memory of A in a stage."""
        return self.block[0] * SWIZZLE_BYTES

    @cached_property
    def panel_bytes(self) -> int:
        """Shared memory of a panel of B."""
        return self.step * SWIZZLE_BYTES

    @cached_property
    def stage_bytes(self) -> int:
        """Shared memory of A and B in a stage."""
        return self.a_bytes + self.consumers[1] * self.panels * self.panel_bytes

    @cached_property
    def stages(self) -> int:
        """Stages of the ring."""
        return self.program.knob("stages")

    @cached_property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: stages, barriers, and what aligning the first stage may take."""
        return ATOM_BYTES + self.stages * (self.stage_bytes + BARRIER_BYTES)

    @cached_property
    def resident(self) -> int:
        """Blocks on a multiprocessor at a time, by the register estimate of the rules."""
        hw = self.program.hardware
        registers = 40 + self.tile[0] * self.tile[1] // WARPGROUP
        limits = (hw.threads_per_unit, hw.blocks_per_unit, hw.registers_per_unit, hw.level("shared").capacity)
        granted = (hw.shared_granularity, hw.shared_reserved)
        return max(1, blocks_per_unit(self.threads, registers, self.shared_bytes, *limits, *granted))

    @cached_property
    def consumer_registers(self) -> int:
        """Registers that a consumer's thread asks for once the producer has given up its own; 0 where nothing is gained.

        A block's registers are shared out in eights, evenly at first.
        """
        even = min(255, self.program.hardware.registers_per_unit // (self.threads * self.resident) // 8 * 8)
        rest = even * (self.num_consumers + 1) - PRODUCER_REGISTERS
        asked = min(CONSUMER_REGISTERS, rest // self.num_consumers // 8 * 8)
        return asked if asked > even > PRODUCER_REGISTERS else 0

    @cached_property
    def persistent(self) -> bool:
        """Whether blocks stay and take one tile after the other: where there are more than can live at a time."""
        return self.program.knob("persistent") == 1 and self.work > self.program.hardware.units * self.resident

    @cached_property
    def work(self) -> int:
        """Block tiles of the output, times parts of the reduction."""
        return self.base.tiles * self.base.slices

    @cached_property
    def grid(self) -> int:
        """Blocks that are launched."""
        return self.program.hardware.units * self.resident if self.persistent else self.work

    def tensor_map(self, read: Access, box: tuple[int, int]) -> TensorMap:
        """Boxes of the last two dimensions of an operand, one matrix of a batch at a time."""
        shape = read.tensor.shape
        pitches = [self.item_bytes]
        for length in reversed(shape[1:]):
            pitches.insert(0, pitches[0] * length)
        lengths = (1,) * (len(shape) - 2) + box
        return TensorMap(self.op.inputs.index(read.tensor), self.op.dtype, shape, tuple(pitches[:-1]), lengths, SWIZZLE_BYTES)

    @cached_property
    def maps(self) -> tuple[TensorMap, TensorMap]:
        """Tensor maps of A and B."""
        left, right = self.op.reads[self.roles.a], self.op.reads[self.roles.b]
        return self.tensor_map(left, (self.box_rows, self.step)), self.tensor_map(right, (self.step, self.panel))


def make_wgmma_plan(program: Program) -> WgmmaPlan:
    """The plan of a program with tensor_core=2; ValueError names an operator, knob or tile that cannot be generated."""
    op, roles = program.operator, matrix_axes(program.operator)
    choices = tensor_core_choices(op, program.hardware)
    if roles is None or 2 not in choices:
        raise ValueError(f"knob tensor_core=2: {op} on {program.hardware.name} takes {choices}")
    for knob in KNOBS:
        if knob.kind != "cpu" and program.knob(knob.name) not in knob.available:
            raise ValueError(f"knob {knob.name}={program.knob(knob.name)}: CUDA code takes {knob.available}")
    for name, first in (("reduce_threads", 1), ("convolution", 0), ("cluster", 1)):
        if program.knob(name) != first:
            raise ValueError(f"knob {name}={program.knob(name)}: wgmma takes {first}")
    if max(program.vthread) > 1:
        raise ValueError(f"virtual threads {program.vthread}: wgmma takes 1 on every axis")
    for a, axis in enumerate(op.axes):
        inner, outer = program.tiles[0][a], program.tiles[1][a]
        if inner < 1 or outer % inner:
            raise ValueError(f"axis {axis.name}: register tile {inner}, block tile {outer}; the first must divide the second")
    plan = WgmmaPlan(program, roles)
    _check_tiles(plan)
    return plan


def _check_tiles(plan: WgmmaPlan) -> None:
    """ValueError unless tiles are whole instructions and fit a block."""
    program, roles = plan.program, plan.roles
    others = [a for a in range(len(plan.op.axes)) if a not in (roles.m, roles.n, roles.k)]
    limit = program.hardware.shared_per_block
    for broken, words in (
        (plan.tile[0] % ROWS, f"{plan.tile[0]} rows of a consumer: multiples of {ROWS}"),
        (plan.tile[1] % 8 or plan.tile[1] > 256, f"{plan.tile[1]} columns of a consumer: 8 to 256, in eights"),
        (plan.step != plan.panel, f"steps of {plan.step} along the reduction: {plan.panel}, one swizzled row"),
        (program.tiles[0][roles.k] % plan.instruction_k, f"chunks of {program.tiles[0][roles.k]}: {plan.instruction_k}s"),
        (any(program.tiles[1][a] != 1 for a in others), f"block tile {program.tiles[1]}: one matrix of a batch"),
        (plan.threads > program.hardware.threads_per_block, f"{plan.threads} threads: {program.hardware.threads_per_block}"),
        (plan.shared_bytes > limit, f"{plan.shared_bytes} bytes of shared memory: at most {limit}"),
    ):
        if broken:
            raise ValueError(f"wgmma kernel of {plan.op}: {words}")
