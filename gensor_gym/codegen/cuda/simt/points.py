"""C text of the loops over the reduction points of one step, with the loads to registers and the accumulation."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace

from gensor_gym.codegen.cuda.index import Point, in_tile, is_known, make_site, origin, spatial_loops, whole
from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.simt.compute import write_accumulation
from gensor_gym.codegen.cuda.simt.fragment import Fragment, declare, write_fragment
from gensor_gym.codegen.cuda.text import Loop, Writer, remainder, total
from gensor_gym.graph.resources import CODE_LIMIT_GPU


def write_points(out: Writer, plan: BlockPlan) -> None:
    """Write the loops over the reduction points of one step.

    If inputs that are not staged need guards, tiles entirely inside the tensors run a second version without guards.
    """
    conditions = inside_conditions(plan)
    if not conditions:
        _write_points(out, plan)
        return
    with out.block(f"if ({' && '.join(conditions)})"):
        _write_points(out, replace(plan, unguarded=True))
    with out.block("else"):
        _write_points(out, plan)


def inside_conditions(plan: BlockPlan) -> list[str]:
    """Return the C conditions under which a step runs without guards; empty if it has no guards, or always needs them."""
    found: list[str] = []
    for read, staged in zip(plan.op.reads, plan.staged, strict=True):
        conditions = [] if staged else whole(plan, read)
        if conditions is None:
            return []
        found += [condition for _, condition in conditions if condition not in found]
    for a in plan.guarded_points:
        condition = f"{total([(1, origin(plan, a))], plan.block[a] - 1)} < {plan.op.extents[a]}"
        if is_known(condition) is False:
            return []
        found += [condition] if condition not in found else []
    return found


def _write_points(out: Writer, plan: BlockPlan) -> None:
    with ExitStack() as stack:
        axes = [a for a in plan.op.reduce if plan.chunks[a] > 1]
        if plan.reduce_threads > 1:
            _enter_shared_chunks(out, plan, stack, axes)
        else:
            stack.enter_context(out.nest(_chunk_loops(plan, axes)))
        body = math.prod(plan.register)
        points = [
            Loop(f"point_{plan.names[a]}", f"CHUNK_{plan.names[a].upper()}", step, 1 if body > CODE_LIMIT_GPU else 0)
            for a in plan.op.reduce
            if plan.register[a] > (step := plan.points.width if a == plan.points.axis else 1)
        ]
        stack.enter_context(out.nest(points))
        site = make_site(plan)
        places = {a: total([(1, origin(plan, a)), (1, in_tile(plan, a, site))]) for a in plan.guarded_points}
        skip = [f"{text} < {plan.op.extents[a]}" for a, text in places.items()]
        stack.enter_context(out.guarded(skip))
        for index in range(len(plan.op.reads)):
            fragment = Fragment(plan, index, tile=plan.tile_name)
            if fragment.axes:
                declare(out, fragment)
            write_fragment(out, fragment, new=not fragment.axes)
        write_accumulation(out, plan)


def _chunk_loops(plan: BlockPlan, axes: list[int]) -> list[Loop]:
    """Return the loops over the chunks (consecutive reduction points) of a step along `axes`.

    Knob `unroll` limits the product of their unroll factors; inner loops are unrolled first.
    """
    loops: list[Loop] = []
    budget = plan.program.knob("unroll")
    for a in reversed(axes):
        name, factor = plan.names[a], min(budget, plan.chunks[a])
        loops.append(Loop(f"chunk_{name}", f"STEP_{name.upper()}", plan.register[a], factor))
        budget = max(1, budget // plan.chunks[a])
    return loops[::-1]


def _enter_shared_chunks(out: Writer, plan: BlockPlan, stack: ExitStack, axes: list[int]) -> None:
    """Begin the loop over one thread's chunks of reduction points.

    Of R threads that share an output, thread r takes chunks r, r + R, and so on.
    """
    chunks, team = math.prod(plan.chunks), plan.reduce_threads
    if chunks == team:
        out.line("const int chunk = reduce_thread;")
    elif chunks < team:
        stack.enter_context(out.block(f"if (const int chunk = reduce_thread; chunk < {chunks})"))
    else:  # the number of rounds is constant, so the compiler loads ahead for all
        rounds = -(-chunks // team)
        swizzled = any(tile.swizzle for tile in plan.shared if tile)  # then every round has its own addresses
        unroll = 1 if swizzled else min(plan.program.knob("unroll"), rounds)
        stack.enter_context(out.nest([Loop("round", str(rounds), 1, unroll)]))
        out.line("const int chunk = reduce_thread + round * REDUCE_THREADS;")
        stack.enter_context(out.guarded([f"round < {rounds - 1} || chunk < {chunks}"] if chunks % team else []))
    divisor = chunks
    for a in axes:
        divisor //= plan.chunks[a]
        index = remainder("chunk", divisor, 0 if a == axes[0] else plan.chunks[a])
        scale = f" * CHUNK_{plan.names[a].upper()}" if plan.register[a] > 1 else ""
        out.line(f"const int chunk_{plan.names[a]} = {index}{scale};")


def declare_fragments(out: Writer, plan: BlockPlan) -> None:
    """Write declarations of the registers for the current and for the next reduction point, before the loop over steps."""
    for registers in ("reg", "next"):
        for index in range(len(plan.op.reads)):
            declare(out, Fragment(plan, index, registers=registers))


def write_first_fragments(out: Writer, plan: BlockPlan, tile: str, registers: str) -> None:
    """Write the loads of the inputs at a step's first reduction point, from the tiles `<name>_<tile>` to `<name>_<registers>`."""
    point = ("0",) * len(plan.names)
    for index in range(len(plan.op.reads)):
        write_fragment(out, Fragment(plan, index, point, tile, registers))


def _unroll(plan: BlockPlan) -> int:
    return plan.program.knob("unroll") * math.prod(plan.register[a] for a in plan.op.reduce)


def unrolled_points(plan: BlockPlan) -> int:
    """Return the number of reduction points in a step except its last, if all of them are unrolled; else 0."""
    rounds = plan.step_points - 1
    return rounds if _unroll(plan) >= rounds else 0


def write_buffered_points(out: Writer, plan: BlockPlan, last: bool, between: str = "") -> None:
    """Write the reduction points of a step, the last point only if `last`.

    Each point loads the inputs for the next point, then accumulates. `between` is a line of text between the loads and the
    accumulation.
    """
    count = plan.step_points
    rounds = count if last else count - 1
    if rounds == 0:
        return
    with out.nest([Loop("point", str(rounds), 1, min(_unroll(plan), rounds))]):
        with out.guarded([f"point < {count - 1}"] if last else []):
            for index in range(len(plan.op.reads)):
                write_fragment(out, Fragment(plan, index, _next_point(plan), plan.tile_name, "next"))
        if between:
            out.line(between)
        write_accumulation(out, plan)
        write_advance(out, plan)


def write_advance(out: Writer, plan: BlockPlan) -> None:
    """Write the moves of the registers for the next reduction point to the current ones.

    In unrolled loops, they cost no instruction.
    """
    for index, read in enumerate(plan.op.reads):
        fragment = Fragment(plan, index)
        loops = spatial_loops(plan, tuple(a for a in fragment.axes if a in plan.op.spatial))
        with out.nest(loops):
            target = fragment.register(make_site(plan))
            out.line(f"{target} = {read.tensor.name}_next{target.removeprefix(read.tensor.name + '_reg')};")


def _next_point(plan: BlockPlan) -> Point:
    """Return the reduction point after point `point` of a step, in an order with the last reduce axis fastest."""
    texts, divisor = ["0"] * len(plan.names), plan.step_points
    live = [a for a in plan.op.reduce if plan.block[a] > 1]
    for a in live:
        divisor //= plan.block[a]
        next_one = "point + 1" if divisor == 1 and a == live[0] else "(point + 1)"
        texts[a] = remainder(next_one, divisor, 0 if a == live[0] else plan.block[a])
    return tuple(texts)
