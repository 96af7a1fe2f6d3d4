"""CUDA C of a matrix product with mma.sync: the block copies tiles to shared memory, and its warps multiply them.

With one stage, a step of the reduction is copied and then multiplied. With S stages, the copies run S - 1 steps ahead. One
barrier per step ensures that the step's tiles have arrived and that all warps have finished the previous step, whose buffer the
next copies overwrite.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack

from gensor_gym.codegen.cuda.kernel import assemble, kernel_text, sizes
from gensor_gym.codegen.cuda.mma.compute import write_lanes, write_step, write_sums
from gensor_gym.codegen.cuda.mma.copy import write_copies, write_held, write_next, write_places, write_puts, write_rounding
from gensor_gym.codegen.cuda.mma.plan import MatrixPlan, make_matrix_plan
from gensor_gym.codegen.cuda.mma.store import write_results
from gensor_gym.codegen.cuda.origins import write_block_tile, write_slice, write_step_origin
from gensor_gym.codegen.cuda.plan import WARP
from gensor_gym.codegen.cuda.text import Writer, remainder
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program


def generate_mma(program: Program) -> Kernel:
    """Generate the CUDA kernel of a program with tensor_core=1 (mma.sync).

    ValueError names a tile or knob that is not supported.
    """
    plan = make_matrix_plan(program)
    entry, out = f"gg_{plan.op.name}", Writer(depth=1)
    _write_positions(out, plan)
    write_sums(out, plan)
    out.line()
    write_places(out, plan)
    write_lanes(out, plan)
    out.line()
    if plan.stages == 1:
        _write_plain_loop(out, plan)
    else:
        _write_pipeline(out, plan)
    out.line()
    write_results(out, plan)
    bounds = f"{plan.threads}, {plan.named}" if plan.named else str(plan.threads)
    return assemble(plan, entry, kernel_text(plan, entry, out, bounds, _constants(plan)))


def _constants(plan: MatrixPlan) -> dict[str, tuple[int, str]]:
    return sizes(plan) | {
        "BUFFER": (plan.stage_bytes, "bytes of a buffer of shared memory"),
        "BUFFERS": (plan.stages * plan.stage_bytes, "bytes of all of them"),
        "POINTS": (plan.fragment_points, "fragments along the reduction in a step"),
        "M_TILES": (plan.m_tiles, "instructions of a warp along m"),
        "N_TILES": (plan.n_tiles, "instructions of a warp along n"),
    }


def _write_positions(out: Writer, plan: MatrixPlan) -> None:
    if plan.slices > 1:
        write_slice(out, plan)
    write_block_tile(out, plan)
    out.line("const int thread = threadIdx.x;")
    out.line(f"const int lane = thread % {WARP};" if plan.threads > WARP else "const int lane = thread;")
    divisor = plan.threads // WARP
    live = [a for a in plan.op.spatial if plan.program.threads[a] > 1]
    if live:
        out.line(f"const int warp = thread / {WARP};")
    for a in live:
        count, name = plan.program.threads[a], plan.names[a]
        divisor //= count
        index = remainder("warp", divisor, 0 if a == live[0] else count)
        out.line(f"const int first_{name} = {index} * {plan.register[a]};")


def _range(plan: MatrixPlan) -> tuple[str, str]:
    return ("first_step", "last_step") if plan.slices > 1 else ("0", "STEPS")


def _write_plain_loop(out: Writer, plan: MatrixPlan) -> None:
    first, last = _range(plan)
    with out.block(f"for (int step = {first}; step < {last}; ++step)"):
        write_step_origin(out, plan, "step", plan.op.reduce)
        write_copies(out, plan, "0", ahead=False)
        write_rounding(out, plan, "0")
        out.line("__syncthreads();  // the tiles are complete")
        write_step(out, plan, "0")
        out.line("__syncthreads();  // every warp is done with the tiles")


def _write_pipeline(out: Writer, plan: MatrixPlan) -> None:
    first, last = _range(plan)
    ahead = plan.stages - 1
    copies = "async" in (plan.a_tile.way, plan.b_tile.way)
    out.note("the first steps, before there is anything to multiply")
    out.line("#pragma unroll 1")
    with out.block(f"for (int stage = 0; stage < {ahead}; ++stage)"):
        out.line(f"const int step = {'stage' if first == '0' else 'first_step + stage'};")
        with out.block(f"if (step < {last})"):
            write_step_origin(out, plan, "step", plan.op.reduce)
            write_copies(out, plan, "stage * BUFFER", ahead=False)
        if copies:
            out.line("commit_copies();")
    out.line(f"int filled = 0, empty = {ahead} * BUFFER;  // where the buffers to multiply and to copy to begin")
    write_held(out, plan)
    write_next(out, plan, f"({first} + {ahead})")
    out.line("#pragma unroll 1")
    with out.block(f"for (int step = {first}; step < {last}; ++step)"):
        if copies:
            out.line(f"wait_for_copies<{ahead - 1}>();")
        write_rounding(out, plan, "filled")
        out.line("__syncthreads();  // this step's tiles are complete, every warp is done with those of the step before")
        _write_ahead(out, plan, last, lambda: write_copies(out, plan, "empty", ahead=True), origin=True)
        if copies:
            out.line("commit_copies();")
        write_step(out, plan, "filled")
        if "held" in (plan.a_tile.way, plan.b_tile.way):
            _write_ahead(out, plan, last, lambda: write_puts(out, plan, "empty"), origin=False)
        out.line("empty = filled;  // copies are one buffer behind the round: so many steps ahead as there are others")
        out.line("filled = filled + BUFFER == BUFFERS ? 0 : filled + BUFFER;")


def _write_ahead(out: Writer, plan: MatrixPlan, last: str, write: Callable[[], None], origin: bool) -> None:
    """Let `write` write statements for the step `stages - 1` ahead, under the condition that this step exists.

    `last` is C text of the end of the steps. With `origin`, the first indices of that step are declared before, if the statements
    use them.
    """
    ahead = plan.stages - 1
    with ExitStack() as stack:
        stack.enter_context(out.block(f"if (step + {ahead} < {last})"))
        at = len(out.lines)
        write()
        words = set(re.findall(r"\w+", "\n".join(out.lines[at:])))
        used = tuple(a for a in plan.op.reduce if origin and f"block_{plan.names[a]}" in words)  # advancing pointers use none
        before = Writer(depth=out.depth)
        if used and plan.steps > 1:
            before.line(f"const int next_step = step + {ahead};")
        write_step_origin(before, plan, "next_step", used)
        out.lines[at:at] = before.lines
