"""Launch bounds: how many blocks of a kernel shall be resident, so that the assembler keeps its registers to that.

The model counts accumulators and fragments. A product whose operands all come through shared memory has little else, and
is held to that count. Elsewhere a thread also has loads under way, or addresses that it keeps; a bound on that count
would spill them, so none is given.
"""

from __future__ import annotations

from gensor_gym.codegen.cuda_copies import Copies
from gensor_gym.codegen.cuda_plan import Plan


def launch_bounds(plan: Plan) -> str:
    """Arguments of `__launch_bounds__`: threads of a block and, for products of staged tiles, blocks at once."""
    copies = [Copies(plan, index) for index, staged in enumerate(plan.staged) if staged]
    plain = len(copies) == len(plan.op.reads) and all(each.distances is not None for each in copies)
    return f"{plan.threads}, {plan.resident}" if plain and plan.op.body == "multiply_add" else str(plan.threads)
