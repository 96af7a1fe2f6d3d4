"""Launch bounds: how many blocks of a kernel shall be resident, so that the assembler keeps its registers to that.

The model counts accumulators and fragments. A product whose operands all come through shared memory has little else, and
is held to that count. Elsewhere a thread also has loads under way, or addresses that it keeps; a bound on that count
would spill them, so none is given.
"""

from __future__ import annotations

import functools

import numpy as np

from gensor_gym.codegen.cuda_copy import Copies
from gensor_gym.codegen.cuda_plan import Plan
from gensor_gym.cost.gpu import resident_blocks
from gensor_gym.graph.tables import make_tables
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


def launch_bounds(plan: Plan) -> str:
    """Arguments of `__launch_bounds__`: threads of a block and, for products of staged tiles, blocks at once."""
    schedule = plan.program.schedule
    copies = [Copies(plan, index) for index, staged in enumerate(plan.staged) if staged]
    plain = len(copies) == len(plan.op.reads) and all(each.distances is not None for each in copies)
    if schedule is None or not plain or plan.op.body != "multiply_add":
        return str(plan.threads)
    blocks = int(resident_blocks(schedule.row, _ints(plan.op, plan.program.hardware)))
    return f"{plan.threads}, {max(1, blocks)}"


@functools.lru_cache(maxsize=256)
def _ints(op: Operator, hardware: Hardware) -> np.ndarray:
    """The integers of a task's tables; the roofline floor does not matter here."""
    return make_tables(op, hardware, "extended", 1.0).ints
