"""C text of the loop over the steps of the reduction, which copies tiles to shared memory and computes with them.

With one buffer, a step is: copy, barrier, compute, barrier. With S buffers, the tiles of step s + S - 1 are in flight while step
s is computed, and one barrier per step frees the buffer of the previous step. Copies are asynchronous. Before sm_80, or if
padding is not zero, they are loads into registers before the multiply-adds and stores after them. With double-buffered fragments,
the barrier comes before the multiply-adds of a step's last point, during which the first fragments of the next step are loaded.
If the points of such a product are unrolled, a few asynchronous copies begin between every two points. If they began together,
loads of fragments would wait for all of them.
"""

from __future__ import annotations

from contextlib import ExitStack

from gensor_gym.codegen.cuda.origins import write_step_origin
from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.simt.compute import write_accumulation
from gensor_gym.codegen.cuda.simt.copies import Copies
from gensor_gym.codegen.cuda.simt.copy import Share, write_copies, write_places, write_registers
from gensor_gym.codegen.cuda.simt.fragment import thread_place
from gensor_gym.codegen.cuda.simt.points import (
    declare_fragments,
    unrolled_points,
    write_advance,
    write_buffered_points,
    write_first_fragments,
    write_points,
)
from gensor_gym.codegen.cuda.text import SCALARS, Writer, total
from gensor_gym.operators.traits import is_product

TOGETHER = 3
"""Number of copies that begin together between two reduction points.

The assembler puts three empty instructions before each such group.
"""


def write_main(out: Writer, plan: BlockPlan) -> None:
    """Write the loop over the steps of the reduction, or the single step of an elementwise operator."""
    copies = [Copies(plan, index) for index, staged in enumerate(plan.staged) if staged]
    for each in copies:
        write_places(out, each)
    if plan.buffered:
        declare_fragments(out, plan)
    if copies:
        out.line()
    if plan.stages > 1:
        _write_pipeline(out, plan, copies)
    else:
        _write_steps(out, plan, copies)


def _write_steps(out: Writer, plan: BlockPlan, copies: list[Copies]) -> None:
    first, last = _range(plan)
    with ExitStack() as stack:
        if plan.steps > 1 or plan.slices > 1:
            stack.enter_context(out.block(f"for (int step = {first}; step < {last}; ++step)"))
        write_step_origin(out, plan, "step", plan.op.reduce)
        for each in copies:
            write_copies(out, each, "move")
        if copies:
            out.line("__syncthreads();  // the tiles are complete")
            out.line()
        if plan.buffered:
            write_first_fragments(out, plan, "tile", "reg")
            write_buffered_points(out, plan, last=True)
        else:
            write_points(out, plan)
        if copies and (plan.steps > 1 or plan.exchange_bytes):
            out.line("__syncthreads();  // every thread is done with the tiles")


def _write_pipeline(out: Writer, plan: BlockPlan, copies: list[Copies]) -> None:
    (first, last), lead, shares = _range(plan), plan.stages - 1, _shares(plan, copies)
    _write_copy_functions(out, plan, copies, shares)
    apart = any(not each.tile.asynchronous for each in copies)
    by_itself = any(each.tile.asynchronous for each in copies)
    until = str(lead) if first == "0" else f"{first} + {lead}"
    filled = "step" if first == "0" else f"step - {first}"
    exists = f"if (step < {last}) " if plan.slices > 1 else ""
    out.line("#pragma unroll")
    with out.block(f"for (int step = {first}; step < {until}; ++step)"):
        out.line(f"{exists}load_tiles(step, {filled}{', -1, true' if shares else ''});")
        if apart:
            out.line(f"{exists}store_tiles({filled});")
        if by_itself:
            out.line("commit_copies();")
    out.line("int buffer = 0;  // read in this step")
    if plan.buffered:
        _write_arrival(out, plan, by_itself)
        write_first_fragments(out, plan, "tile", "reg")
    with out.block(f"for (int step = {first}; step < {last}; ++step)"):
        if not plan.buffered:
            _write_arrival(out, plan, by_itself)
        out.line(f"const int ahead = step + {lead}, free_buffer = buffer == 0 ? {lead} : buffer - 1;")
        _write_ahead(out, plan, last, by_itself, bool(shares))
        if apart:
            out.line(f"if (ahead < {last}) store_tiles(free_buffer);")
        if plan.buffered:
            _write_arrival(out, plan, by_itself)
        out.line(f"buffer = buffer == {lead} ? 0 : buffer + 1;")
        if plan.buffered:
            _write_turn(out, plan)
    if shares:
        out.line("wait_for_copies<0>();  // of steps that do not exist: zeros, which may not come once the thread has ended")
    if plan.exchange_bytes:
        out.line("__syncthreads();  // every thread is done with the tiles")


def _write_ahead(out: Writer, plan: BlockPlan, last: str, by_itself: bool, spread: bool) -> None:
    if not spread:
        out.line(f"if (ahead < {last}) load_tiles(ahead, free_buffer);")
    if by_itself and not spread:
        out.line("commit_copies();")
    _write_step(out, plan, f"load_tiles(ahead, free_buffer, point, ahead < {last});" if spread else "")
    if spread:
        out.line("commit_copies();")


def _shares(plan: BlockPlan, copies: list[Copies]) -> list[Share]:
    """Distribute the copies of each input over the reduction points of a step, if that is worthwhile.

    Otherwise the list is empty.
    """
    points, trips = unrolled_points(plan), [each.trips for each in copies]
    whole = [each for each in copies if each.tile.asynchronous and (each.whole_box is None or not each.guarded)]
    if not (plan.buffered and is_product(plan.op) and points > 1 and len(whole) == len(copies)):
        return []
    groups = min(points, -(-sum(trips) // TOGETHER))
    return [Share(sum(trips[:i]), sum(trips), groups, points) for i in range(len(copies))]


def _write_copy_functions(out: Writer, plan: BlockPlan, copies: list[Copies], shares: list[Share]) -> None:
    """Write the C++ lambdas `load_tiles(step, buffer)` and, if some copies pass through registers, `store_tiles(buffer)`.

    If `shares` divides the copies among the points of a step, `load_tiles` has the parameters of `Share` too.
    """
    apart = [each for each in copies if not each.tile.asynchronous]
    for each in apart:
        write_registers(out, each)
    with out.block(f"const auto load_tiles = [&](int step, int buffer{', int part, bool more' if shares else ''})", ";"):
        write_step_origin(out, plan, "step", _moved(plan, staged=True))
        for number, each in enumerate(copies):
            share = shares[number] if shares else None
            write_copies(out, each, "async" if each.tile.asynchronous else "load", "buffer", share)
    if apart:
        with out.block("const auto store_tiles = [&](int buffer)", ";"):
            for each in apart:
                write_copies(out, each, "store", "buffer")


def _write_arrival(out: Writer, plan: BlockPlan, by_itself: bool) -> None:
    if by_itself:
        out.line(f"wait_for_copies<{plan.stages - 2}>();")
    out.line("__syncthreads();  // the next tiles are complete, the ones before are free")


def _write_step(out: Writer, plan: BlockPlan, between: str) -> None:
    """Write the computation at the reduction points of one step.

    With double-buffered fragments, the last point is omitted, and the line `between` is written in each of the others.
    """
    if plan.buffered and plan.step_points == 1:
        return
    write_step_origin(out, plan, "step", _moved(plan, staged=False))
    _write_tiles(out, plan, "now")
    if plan.buffered:
        write_buffered_points(out, plan, last=False, between=between)
    else:
        write_points(out, plan)


def _write_turn(out: Writer, plan: BlockPlan) -> None:
    """Write the last reduction point of a step: load the inputs for the first point of the next step, then accumulate."""
    _write_tiles(out, plan, "then")
    write_first_fragments(out, plan, "then", "next")
    write_accumulation(out, plan)
    write_advance(out, plan)


def _write_tiles(out: Writer, plan: BlockPlan, suffix: str) -> None:
    for index, (read, tile) in enumerate(zip(plan.op.reads, plan.shared, strict=True)):
        if tile is not None:
            name, kind = read.tensor.name, SCALARS[read.tensor.dtype].name
            place = total([(plan.stage_bytes // tile.item, "buffer"), (1, thread_place(plan, index))])
            out.line(f"const {kind} *{name}_{suffix} = {name}_tile + {place};")


def _moved(plan: BlockPlan, staged: bool) -> tuple[int, ...]:
    """Return the reduce axes whose `block_<axis>` is used by a step's copies if `staged`, else by its computation."""
    reads = [read for read, is_staged in zip(plan.op.reads, plan.staged, strict=True) if is_staged == staged]
    used = [] if staged else list(plan.guarded_points)
    used += [a for a in plan.op.reduce if any(row[a] for read in reads for row in read.coefficients)]
    return tuple(a for a in plan.op.reduce if a in used)


def _range(plan: BlockPlan) -> tuple[str, str]:
    return ("first_step", "last_step") if plan.slices > 1 else ("0", str(plan.steps))
