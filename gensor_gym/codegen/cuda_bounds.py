"""Launch bounds: how many blocks of a kernel shall be resident, so that the assembler keeps its registers to that."""

from __future__ import annotations

import functools

import numpy as np

from gensor_gym.codegen.program import Program
from gensor_gym.cost.gpu import resident_blocks
from gensor_gym.graph.tables import make_tables
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def resident(program: Program) -> int:
    """Blocks that the analytic model counts on per multiprocessor; 1 where it counts on none or has no schedule."""
    if program.schedule is None:
        return 1
    return max(1, int(resident_blocks(program.schedule.row, _ints(program.operator, program.hardware))))


@functools.lru_cache(maxsize=256)
def _ints(op: Operator, hardware: Hardware) -> np.ndarray:
    """The integers of a task's tables; the roofline floor does not matter here."""
    return make_tables(op, hardware, "extended", 1.0).ints
