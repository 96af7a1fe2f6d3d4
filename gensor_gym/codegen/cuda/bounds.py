"""Launch bounds: how many blocks of a kernel shall be resident, so that the assembler keeps its registers to that.

The model counts accumulators, fragments and what copies keep. A product whose operands all come through shared memory has
little else, and is held to that count. Elsewhere a thread also has loads under way; a bound on that count would spill
them, so none is given.
"""

from __future__ import annotations

from gensor_gym.codegen.cuda.plan import BlockPlan


def launch_bounds(plan: BlockPlan) -> str:
    """Arguments of `__launch_bounds__`: threads of a block and, for products of staged tiles, blocks at once."""
    held = all(plan.staged) and plan.op.body == "multiply_add"
    return plan.dialect.launch_bounds(plan.threads, plan.warp, plan.resident if held else None)
