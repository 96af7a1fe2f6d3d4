"""How many blocks of a program's kernel a multiprocessor holds at a time, as legality and the model count it."""

from __future__ import annotations

import functools

import numpy as np

from gensor_gym.codegen.program import Program, row_of
from gensor_gym.graph.resources import registers_of
from gensor_gym.graph.tables.filling import make_tables
from gensor_gym.hardware.occupancy import blocks_per_unit
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def resident_blocks(program: Program, threads: int, shared_bytes: int, spare: int = 0) -> int:
    """Blocks at a time, at least 1, by the registers that `graph.resources` counts for a thread and `spare` more.

    `threads` and `shared_bytes` are of a block, as the kernel is launched.
    """
    hw = program.hardware
    registers = min(counted_registers(program) + spare, hw.registers_per_thread)
    return max(1, blocks_per_unit(
        threads, registers, shared_bytes, hw.threads_per_unit, hw.blocks_per_unit, hw.registers_per_unit,
        hw.level("shared").capacity, hw.shared_granularity, hw.shared_reserved,
    ))  # fmt: skip


def counted_registers(program: Program) -> int:
    """Registers of a thread as `graph.resources` counts them."""
    return int(registers_of(row_of(program), _ints(program.operator, program.hardware)))


@functools.lru_cache(maxsize=256)
def _ints(op: Operator, hardware: Hardware) -> np.ndarray:
    """The integers of a task's tables; the roofline floor does not matter here."""
    return make_tables(op, hardware, "extended", 1.0).ints
