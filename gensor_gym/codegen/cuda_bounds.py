"""Launch bounds: how many blocks of a kernel shall be resident, so that the assembler keeps its registers to that.

The model counts accumulators and fragments. A product whose operands all come through shared memory has little else, and
is held to that count. Elsewhere a thread also has loads under way, or addresses that it keeps; a bound on that count
would spill them, so none is given.
"""

from __future__ import annotations

import functools

import numpy as np

from gensor_gym.codegen.cuda_copies import Copies
from gensor_gym.codegen.cuda_plan import Plan
from gensor_gym.graph.resources import registers_of
from gensor_gym.graph.tables import make_tables
from gensor_gym.hardware.occupancy import blocks_per_unit
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def launch_bounds(plan: Plan) -> str:
    """Arguments of `__launch_bounds__`: threads of a block and, for products of staged tiles, blocks at once."""
    schedule = plan.program.schedule
    copies = [Copies(plan, index) for index, staged in enumerate(plan.staged) if staged]
    plain = len(copies) == len(plan.op.reads) and all(each.distances is not None for each in copies)
    if schedule is None or not plain or plan.op.body != "multiply_add":
        return str(plan.threads)
    hw = plan.program.hardware
    registers = int(registers_of(schedule.row, _ints(plan.op, hw)))
    capacity = next(level.capacity for level in hw.memory if level.name == "shared")
    blocks = blocks_per_unit(
        plan.threads, registers, plan.shared_bytes, hw.threads_per_unit, hw.blocks_per_unit,
        hw.registers_per_unit, capacity, hw.shared_granularity, hw.shared_reserved,
    )  # fmt: skip
    return f"{plan.threads}, {max(1, blocks)}"


@functools.lru_cache(maxsize=256)
def _ints(op: Operator, hardware: Hardware) -> np.ndarray:
    """The integers of a task's tables; the roofline floor does not matter here."""
    return make_tables(op, hardware, "extended", 1.0).ints
