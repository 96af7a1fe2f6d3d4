"""CUDA C of a float32 product whose tiles a producer copies through TMA into a ring of stages in shared memory (`wgmma/ring.py`).

Computing warps wait for full stages and release them one by one, so no barrier of the whole block is in the loop. The ring
continues from one tile to the next: while a tile is stored, the operands of the next tile are copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from gensor_gym.codegen.cuda.index import along, in_tile, make_site, origin, spatial_loops
from gensor_gym.codegen.cuda.kernel import assemble, kernel_text, sizes
from gensor_gym.codegen.cuda.origins import write_block_tile, write_slice
from gensor_gym.codegen.cuda.producer.plan import ITEM, LANES, ProducerPlan, producer_plan
from gensor_gym.codegen.cuda.simt.compute import accumulator, write_accumulators
from gensor_gym.codegen.cuda.simt.fragment import Fragment, declare, thread_place, write_fragment
from gensor_gym.codegen.cuda.simt.lanes import patch_of, write_lanes
from gensor_gym.codegen.cuda.simt.store import write_store
from gensor_gym.codegen.cuda.tensor_map import UNIT
from gensor_gym.codegen.cuda.text import Loop, Writer, remainder, subscript, total
from gensor_gym.codegen.cuda.wgmma.ring import (
    declare_ring,
    initialised_ring,
    only_producer,
    write_first_stage,
    write_next_stage,
    write_refill,
    write_release,
)
from gensor_gym.codegen.cuda.wgmma.text import FUNCTIONS, load_box
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES


def generate_producer(program: Program) -> Kernel | None:
    """Generate the kernel of a float32 product whose tiles a producer copies; None for a program without such a kernel."""
    plan = producer_plan(program)
    if plan is None:
        return None
    entry, out = f"gg_{plan.op.name}", Writer(depth=1)
    if plan.slices > 1:
        write_slice(out, plan)
    declare_ring(out)
    with initialised_ring(out):
        pass
    with out.block("if (threadIdx.x >= COMPUTING)"):
        _write_producer(out, plan)
    _write_computing(out, plan)
    main = kernel_text(plan, entry, out, f"{plan.threads}, {plan.resident}", _constants(plan))
    functions = FUNCTIONS | {f"load_box_{len(each.shape)}d": load_box(len(each.shape)) for each in plan.maps}
    return replace(assemble(plan, entry, main, functions), operator=program.operator)


def _constants(plan: ProducerPlan) -> dict[str, tuple[int, str]]:
    return sizes(plan) | {
        "COMPUTING": (plan.computing.threads, "threads that compute, before the producer's"),
        "CONSUMER_WARPS": (-(-plan.computing.threads // 32), "warps that give a stage back"),
        "STAGES": (plan.stages, "stages of the ring"),
        "STAGE_BYTES": (plan.stage_bytes, "a stage: tiles of both operands"),
        "COPIED_BYTES": (plan.copied_bytes, "of a stage, without what aligns the tiles"),
        "A_BYTES": (plan.a_bytes, "of a stage, before B"),
    }


@contextmanager
def _over_tiles(out: Writer, plan: ProducerPlan) -> Iterator[None]:
    """Write the lines of the `with` block for each tile of this block, after declarations of the tile's first indices."""
    with ExitStack() as stack:
        if plan.persistent:
            stack.enter_context(out.block("for (int work = blockIdx.x; work < TILES; work += gridDim.x)"))
        write_block_tile(out, plan, "work" if plan.persistent else "blockIdx.x")
        yield


def _steps(plan: ProducerPlan) -> tuple[str, str]:
    return ("first_step", "last_step") if plan.slices > 1 else ("0", "STEPS")


def _write_producer(out: Writer, plan: ProducerPlan) -> None:
    (first, last), exchanges = _steps(plan), plan.consumer_registers > 0
    with only_producer(out, "COMPUTING", plan.mapped, exchanges), _over_tiles(out, plan):
        with out.block(f"for (int step = {first}; step < {last}; ++step)"):
            out.line("const unsigned a_tile = tiles + stage * STAGE_BYTES, b_tile = a_tile + A_BYTES;")
            write_refill(out, "COPIED_BYTES")
            _write_copies(out, plan)
            write_next_stage(out)


def _write_copies(out: Writer, plan: ProducerPlan) -> None:
    roles, (a, b) = plan.roles, plan.mapped
    step, (left, right) = f"step * STEP_{plan.names[roles.k].upper()}", plan.maps
    origins = [origin(plan, axis) if axis in plan.op.spatial else "0" for axis in range(len(plan.names))]
    batch_a, batch_b = (
        [along(read, d, origins) for d in reversed(range(len(read.view) - 2))]
        for read in (plan.op.reads[roles.a], plan.op.reads[roles.b])
    )
    for row in range(0, plan.block[roles.m], plan.box_rows):
        place = ", ".join([step, total([(1, origins[roles.m])], row), *batch_a])
        out.line(f"load_box_{len(left.shape)}d({total([(1, 'a_tile')], row * plan.step * ITEM)}, {a}_map, ready, {place});")
    out.line(f"load_box_{len(right.shape)}d(b_tile, {b}_map, ready, {', '.join([origins[roles.n], step, *batch_b])});")


def _write_computing(out: Writer, plan: ProducerPlan) -> None:
    computing = plan.computing
    if plan.consumer_registers:
        out.line(f"request_registers<{plan.consumer_registers}>();")
    out.line("const int thread = threadIdx.x;")
    write_lanes(out, computing)
    if patch_of(computing) is None:
        out.line("const int lane = thread % 32;")
    if plan.swizzle:
        turn = remainder(_first_row(plan), SWIZZLE_BYTES // plan.swizzle, plan.swizzle // UNIT)
        out.line(f"const int {plan.mapped[0]}_turn = {turn} * {LANES};  // of the units of 16 bytes in the thread's rows")
    out.line("const unsigned char *ring = shared_memory + (tiles - shared_address(shared_memory));")
    write_first_stage(out, parity=0)
    first, last = _steps(plan)
    with _over_tiles(out, plan):
        write_accumulators(out, computing)
        _write_multiply(out, plan)
        with out.guarded([f"{first} < {last}"] if plan.slices > 1 else []):
            out.line("barrier_wait(full + stage * 8, parity);")
        _write_tiles(out, plan, "now")
        with out.nest(spatial_loops(computing, (plan.roles.m,))):
            _write_row(out, plan, "now", _place(plan, "0"))
        write_fragment(out, _columns(plan, "now", "reg"))
        with out.block(f"for (int step = {first}; step < {last}; ++step)"):
            _write_step(out, plan, last)
        out.line()
        write_store(out, computing)


def _columns(plan: ProducerPlan, tile: str, registers: str) -> Fragment:
    return Fragment(plan.computing, plan.roles.b, ("0",) * len(plan.names), tile, registers)


def _write_tiles(out: Writer, plan: ProducerPlan, suffix: str) -> None:
    """Write declarations of the places of the thread's first row and column in the tiles of the current stage."""
    for name, offset, place in (
        (plan.mapped[0], "", total([(plan.step, _first_row(plan))])),
        (plan.mapped[1], " + A_BYTES", thread_place(plan.computing, plan.roles.b)),
    ):
        tile = f"reinterpret_cast<const float *>(ring + stage * STAGE_BYTES{offset})"
        out.line(f"const float *{name}_{suffix} = {total([(1, tile), (1, place)])};")


def _first_row(plan: ProducerPlan) -> str:
    m = plan.roles.m
    return f"first_{plan.names[m]}" if plan.program.threads[m] > 1 else "0"


def _place(plan: ProducerPlan, point: str) -> str:
    """Return the C text of the place of reduction point `point` in a row of A, which is the same in all rows of a thread."""
    turn = f"{plan.mapped[0]}_turn"
    return point if not plan.swizzle else turn if point == "0" else f"({point} ^ {turn})"


def _write_multiply(out: Writer, plan: ProducerPlan) -> None:
    """Write the operands' registers, and the C++ lambda `multiply` of the multiply-adds of one reduction point.

    The point is element `nth` of the elements of A in registers. Meanwhile, the columns of B at the next point are loaded from
    `<B>_row`. If there is no further element of A, each row's next ones from `point` on are loaded from the tile `<A>_rows` as
    soon as the row is done.
    """
    computing, roles, (a, b), last = plan.computing, plan.roles, plan.mapped, plan.width - 1
    rows, columns = (spatial_loops(computing, (axis,)) for axis in (roles.m, roles.n))
    out.line(f"float {a}_reg[REG_{plan.names[roles.m].upper()}][{plan.width}];")
    for registers in ("reg", "next"):
        declare(out, _columns(plan, "row", registers))
    head = f"const auto multiply = [&](int nth, const float *{b}_row, const float *{a}_rows)"
    with out.block(head, ";"):
        write_fragment(out, _columns(plan, "row", "next"))
        with out.nest(rows):
            factor = _columns(plan, "row", "reg")
            with out.nest(columns):
                column = factor.register(make_site(computing))
                out.line(f"{accumulator(computing)} += {subscript(f'{a}_reg', [_row(plan), 'nth'])} * {column};")
            with out.block(f"if (nth == {last})"):
                _write_row(out, plan, "rows", "0")
        with out.nest(columns):
            out.line(f"{column} = {_columns(plan, 'row', 'next').register(make_site(computing))};")


def _row(plan: ProducerPlan) -> str:
    return make_site(plan.computing).index(plan.roles.m)


def _write_row(out: Writer, plan: ProducerPlan, tile: str, point: str) -> None:
    """Write the load of the elements of A in one row of the thread, those of `width` points from `point` on."""
    a, m = plan.mapped[0], plan.roles.m
    place = [(plan.step, in_tile(plan.computing, m, make_site(plan.computing), from_first=True)), (1, point)]
    out.line(f"const float{plan.width} {a}_group = *reinterpret_cast<const float{plan.width} *>(&{a}_{tile}[{total(place)}]);")
    for nth, part in enumerate("xyzw"[: plan.width]):
        out.line(f"{subscript(f'{a}_reg', [_row(plan), str(nth)])} = {a}_group.{part};")


def _write_step(out: Writer, plan: ProducerPlan, last: str) -> None:
    """Write the multiply-adds of one stage of the ring.

    All reads of the stage have begun before its last point. So the stage is released then, and the operands of the first point of
    the next stage are loaded during the last point. In the last step these are never used, and the stage need not be full.
    """
    (a, b), width, k = plan.mapped, plan.width, plan.names[plan.roles.k].upper()
    pitch = f"BLOCK_{plan.names[plan.roles.n].upper()}" if plan.block[plan.roles.n] > 1 else "1"
    groups = plan.step // width - 1
    _write_tiles(out, plan, "now")
    if groups:
        unroll = plan.program.knob("unroll") * plan.register[plan.roles.k] // width
        rounds = Loop("point", f"STEP_{k} - {width}", width, min(max(1, unroll), groups))
        with out.nest([rounds, Loop("nth", str(width))]):
            row = total([(1, f"{a}_now"), (1, _place(plan, f"(point + {width})"))])
            out.line(f"multiply(nth, {b}_now + (point + nth + 1) * {pitch}, {row});")
    with out.nest([Loop("nth", str(width - 1))]):
        out.line(f"multiply(nth, {b}_now + (STEP_{k} - {width} + nth + 1) * {pitch}, {a}_now);")
    out.line("__syncwarp(0xffffffffu);  // all lanes have read the stage")
    write_release(out, 1, "stage")
    write_next_stage(out)
    out.line(f"if (step + 1 < {last}) barrier_wait(full + stage * 8, parity);")
    _write_tiles(out, plan, "then")
    row = total([(1, f"{a}_then"), (1, _place(plan, "0"))])
    out.line(f"multiply({width - 1}, {b}_then, {row});")
