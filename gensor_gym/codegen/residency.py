"""Occupancy: the number of a kernel's blocks that a multiprocessor runs at the same time.

It is counted as in the rules of legality and in the analytic model.
"""

from __future__ import annotations

import functools

import numpy as np

from gensor_gym.codegen.program import Program, row_of
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.resources import registers_of
from gensor_gym.graph.tables.filling import make_tables
from gensor_gym.hardware.occupancy import blocks_per_unit
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def resident_blocks(program: Program, threads: int, shared_bytes: int, spare: int = 0) -> int:
    """Return the number of blocks that a multiprocessor runs at the same time, at least 1.

    A thread takes the registers that `counted_registers` returns, and `spare` more. `threads` and `shared_bytes` are those of one
    block at the kernel's launch.
    """
    hw = program.hardware
    registers = min(counted_registers(program) + spare, hw.registers_per_thread)
    return max(1, blocks_per_unit(
        threads, registers, shared_bytes, hw.threads_per_unit, hw.blocks_per_unit, hw.registers_per_unit,
        hw.level("shared").capacity, hw.shared_granularity, hw.shared_reserved,
    ))  # fmt: skip


def counted_registers(program: Program) -> int:
    """Return the number of registers of a thread, as `graph.resources` counts them."""
    return int(registers_of(plain(row_of(program)), _ints(program.operator, program.hardware)))


@functools.lru_cache(maxsize=256)
def _ints(op: Operator, hardware: Hardware) -> np.ndarray:
    """Return the integer table of an operator on a machine, for `graph.resources`.

    The table also has a lower bound on the time. It is not used here, so 1.0 s is passed.
    """
    return make_tables(op, hardware, "extended", 1.0).ints
