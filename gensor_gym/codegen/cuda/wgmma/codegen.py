"""CUDA C of a matrix product for sm_90a: one warpgroup copies tiles into a ring of stages, the other warpgroups multiply them.

A thread of the copying warpgroup, the producer, starts TMA copies into a stage as soon as all consumers have released it. A
consumer issues the wgmma instructions of a stage as soon as it is full, and releases it once their products are done. Each stage
has two barriers for that, `full` and `empty`. The ring continues from one tile to the next, so in a persistent kernel the
operands of the next tile are copied while the current tile is stored.

Blocks of a cluster execute the same steps for adjacent tiles. Each block copies its share of B's tile to all blocks of the
cluster. So a stage is released to every block of the cluster, and no block ends before all blocks are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from gensor_gym.codegen.cuda.kernel import assemble, kernel_text, sizes
from gensor_gym.codegen.cuda.origins import write_block_tile
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, total
from gensor_gym.codegen.cuda.wgmma.boxes.plan import with_boxes
from gensor_gym.codegen.cuda.wgmma.boxes.store import box_constants, declare_buffers, write_boxes, write_last_wait
from gensor_gym.codegen.cuda.wgmma.convolution import ConvolutionPlan, make_convolution_plan
from gensor_gym.codegen.cuda.wgmma.copies import write_copies, write_window
from gensor_gym.codegen.cuda.wgmma.folding import folding_kernel, with_folded_rows
from gensor_gym.codegen.cuda.wgmma.fused import with_fused_columns
from gensor_gym.codegen.cuda.wgmma.layout import layout_kernel
from gensor_gym.codegen.cuda.wgmma.pingpong import (
    alternating,
    over_own_tiles,
    write_hand_over,
    write_own_ring,
    write_skip,
    write_turn,
    write_turn_barriers,
)
from gensor_gym.codegen.cuda.wgmma.plan import (
    ATOM_BYTES,
    WARPGROUP,
    WgmmaPlan,
    make_wgmma_plan,
)
from gensor_gym.codegen.cuda.wgmma.ring import (
    declare_ring,
    initialised_ring,
    only_producer,
    with_deepest_ring,
    write_first_stage,
    write_next_stage,
    write_refill,
    write_release,
)
from gensor_gym.codegen.cuda.wgmma.rows import RowsPlan, make_rows_plan
from gensor_gym.codegen.cuda.wgmma.shares import over_share, share_constants, write_shared_store
from gensor_gym.codegen.cuda.wgmma.store import first_column, first_row, write_pixel_origin, write_store
from gensor_gym.codegen.cuda.wgmma.text import multiply_name, store_box, wgmma_functions
from gensor_gym.codegen.cuda.wgmma.transpose import transpose_kernel
from gensor_gym.codegen.kernel import Kernel, Launch
from gensor_gym.codegen.program import Program
from gensor_gym.graph.matrices.choices import WGMMA_ROWS
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES, is_laid_out, is_transposed

WARPS = WARPGROUP // 32


def generate_wgmma(program: Program) -> Kernel:
    """Generate the CUDA kernel of a program with tensor_core=2 (wgmma), for sm_90a. ValueError names the unsupported part."""
    return _generate(_plan(program), program)


def generate_pingpong(program: Program, in_boxes: bool = False) -> Kernel | None:
    """Generate the kernel of a program with tensor_core=2 whose consumers take turns (`pingpong.py`).

    None for a program without such a kernel: with a split reduction, or with so few tiles that all run at the same time. With
    `in_boxes`, TMA stores the output, and None also if it cannot (`with_boxes`).
    """

    def plan_of(each: Program) -> WgmmaPlan | None:
        plan = _plan(each, alternates=True)
        return with_boxes(plan) if in_boxes else plan

    plan = alternating(program, plan_of)
    return None if plan is None else _generate(plan, program)


def generate_in_boxes(program: Program) -> Kernel | None:
    """Generate the kernel of a program with tensor_core=2 whose output TMA stores (`boxes/`).

    None if it cannot (`with_boxes`). The ring has as many stages as fit while as many blocks run at a time as with the program's
    number of stages.
    """
    plan = with_boxes(_plan(program.with_knobs(stages=1)))
    return None if plan is None else _generate(with_deepest_ring(plan, program.knob("stages")), program)


def _generate(plan: WgmmaPlan, program: Program) -> Kernel:
    entry, out = f"gg_{plan.op.name}", Writer(depth=1)
    _write_descriptors(out, plan)
    _write_barriers(out, plan)
    with out.block("if (warpgroup == 0)"):
        _write_producer(out, plan)
    _write_consumer(out, plan)
    main = kernel_text(plan, entry, out, f"{plan.threads}, {plan.resident}", _constants(plan), plan.cluster)
    ranks = {len(each.shape) for each in plan.maps}
    functions = wgmma_functions(plan.op.dtype, plan.tile[1], ranks, plan.b_in_rows)
    if plan.boxes:
        rank = len(plan.boxes.axes)
        functions[f"store_box_{rank}d"] = store_box(rank)
    before = _kernel_before(plan, program, entry)
    text, launches = (f"{before[0]}\n{main}", before[1:]) if before else (main, ())
    return replace(assemble(plan, entry, text, functions, launches), operator=program.operator)


def _kernel_before(plan: WgmmaPlan, program: Program, entry: str) -> tuple[str, Launch] | None:
    if isinstance(plan, ConvolutionPlan):
        folded = plan.op != program.operator
        return folding_kernel(plan, program.operator, entry) if folded else layout_kernel(plan, entry)
    return transpose_kernel(plan, entry) if isinstance(plan, RowsPlan) and plan.is_moved else None


def _plan(program: Program, alternates: bool = False) -> WgmmaPlan:
    if is_laid_out(program.operator):
        return make_convolution_plan(with_folded_rows(program), alternates)
    if is_transposed(program.operator):
        return make_rows_plan(program, alternates)
    return make_wgmma_plan(with_fused_columns(program), alternates)


def _constants(plan: WgmmaPlan) -> dict[str, tuple[int, str]]:
    table = sizes(plan) | {
        "STAGES": (plan.stages, "stages of the ring"),
        "STAGE_BYTES": (plan.stage_bytes, "a stage: tiles of both operands"),
        "COPIED_BYTES": (plan.copied_bytes, "of a stage, rows that are there"),
        "A_BYTES": (plan.a_bytes, "of a stage, before B"),
        "PANEL_BYTES": (plan.panel_bytes, f"{plan.panel} columns of B"),
        "B_BYTES": (plan.b_bytes, "of a stage, the columns of one consumer"),
        "COLUMNS": (plan.tile[1], "pixels of a consumer"),
        "CONSUMER_WARPS": (plan.tile_consumers * WARPS * plan.cluster, "warps that give a stage back"),
        "POINTS": (plan.step // plan.depth, "wgmma along a step"),
        "ROW_BLOCKS": (plan.tile[0] // WGMMA_ROWS, f"blocks of {WGMMA_ROWS} rows of a consumer"),
        "WORK": (plan.work, "tiles, times slices"),
        "CLUSTER": (plan.cluster, "blocks that share a tile of B, neighbours along m"),
        "EVERY_BLOCK": ((1 << plan.cluster) - 1, "of the cluster, as a mask"),
    }
    table |= share_constants(plan) | (box_constants(plan, plan.boxes) if plan.boxes else {})
    if plan.cluster > 1:
        table["TILES"] = (plan.tiles, "block tiles of the output, those of a cluster as one")
    return table


def _write_descriptors(out: Writer, plan: WgmmaPlan) -> None:
    """Write declarations of the matrix descriptors of A and B without their addresses.

    Bit 62 is the swizzle. The stride is at bit 32, the leading offset at bit 16 and the address in the 14 bits from 0, in units
    of 16 bytes. In a cluster, higher bits of a shared address contain the rank of its block.
    """
    word = "constexpr unsigned long long"
    swizzled, stride = "1ull << 62", f"{ATOM_BYTES // 16}ull << 32"
    out.line(f"{word} A_ROWS = {swizzled} | {stride} | 1ull << 16;  // rows of k: 128-byte swizzle, atoms of eight rows")
    if plan.b_in_rows:
        out.line(f"{word} B_ROWS = A_ROWS;")
        return
    leading = f"{plan.panel_bytes // 16}ull << 16"
    out.line(f"{word} B_PANELS = {swizzled} | {stride} | {leading};  // rows of n, {plan.panel} columns a panel")


def _write_barriers(out: Writer, plan: WgmmaPlan) -> None:
    declare_ring(out, "RESULTS + RESULTS_BYTES" if plan.boxes else "STAGES * STAGE_BYTES")
    if plan.alternates:
        out.line("const unsigned turn = empty + STAGES * 8;  // of each consumer: the other one is done")
    with initialised_ring(out, plan.cluster):
        if plan.alternates:
            write_turn_barriers(out, WARPS)
    if plan.cluster > 1:
        out.line("const int rank = blockIdx.x % CLUSTER;")
    out.line(f"const int warpgroup = threadIdx.x / {WARPGROUP};")


def _write_producer(out: Writer, plan: WgmmaPlan) -> None:
    with only_producer(out, "0", plan.mapped, plan.consumer_registers > 0), _over_work(out, plan), _over_steps(out, plan):
        if isinstance(plan, ConvolutionPlan):
            write_window(out, plan)
        out.line("const unsigned a_tile = tiles + stage * STAGE_BYTES, b_tile = a_tile + A_BYTES;")
        write_refill(out, "COPIED_BYTES" if plan.copied_bytes < plan.stage_bytes else "STAGE_BYTES")
        write_copies(out, plan)
        write_next_stage(out)


def _write_consumer(out: Writer, plan: WgmmaPlan) -> None:
    if plan.consumer_registers:
        out.line(f"request_registers<{plan.consumer_registers}>();")
    elif plan.shares_steps:
        out.line("__syncwarp(0xffffffffu);  // or the assembler calls paths to the sums divergent, and serialises wgmma")
    out.line(f"const int thread = threadIdx.x % {WARPGROUP}, lane = threadIdx.x % 32;")
    _write_place(out, plan)
    if plan.boxes:
        declare_buffers(out, plan.boxes)
    if plan.alternates:
        write_own_ring(out)
    else:
        write_first_stage(out, parity=0)
    with _over_work(out, plan, own=plan.alternates):
        out.line(f"{SCALARS[plan.op.accumulator].name} acc[ROW_BLOCKS][{plan.columns_text} / 2];")
        if plan.stages > 1:
            out.line("int before = 0;  // stage of the step before")
        if plan.alternates:
            write_turn(out)
        _write_all_products(out, plan)
        if plan.alternates:
            write_hand_over(out)
        if plan.stages > 1:
            out.line("wgmma_wait<0>();")
            write_release(out, plan.cluster, "before")
        if plan.alternates:
            write_skip(out)
        out.line()
        if plan.boxes:
            write_boxes(out, plan, plan.boxes)
        elif plan.shares_steps:
            write_shared_store(out, plan)
        else:
            write_store(out, plan)
    if plan.boxes:
        write_last_wait(out)
    if plan.cluster > 1:
        out.line("cluster_sync();  // until then others of the cluster give stages back to this block")


def _write_place(out: Writer, plan: WgmmaPlan) -> None:
    rows, columns = plan.consumers
    m, n = plan.names[plan.roles.m], plan.column_name
    row = {1: "0", plan.num_consumers: "warpgroup - 1"}.get(rows, f"(warpgroup - 1) / {columns}")
    column = {1: "0", plan.num_consumers: "warpgroup - 1"}.get(columns, f"(warpgroup - 1) % {columns}")
    if rows > 1:
        out.line(f"const int consumer_{m} = {row};")
    if columns > 1:
        out.line(f"const int consumer_{n} = {column};")
    first = [(1, f"consumer_{m} * REG_{m.upper()}" if rows > 1 else "0"), (1, "thread / 32 * 16"), (1, first_row(plan))]
    out.line(f"const int first_{m} = {total(first)};")
    several = len(plan.column_axes) > 1
    if several:
        write_pixel_origin(out, plan)
    # If columns run over several axes, `write_pixel_origin` declares where a consumer begins.
    shared = columns > 1 and not several
    first = [(1, f"consumer_{n} * REG_{n.upper()}" if shared else "0"), (1, first_column(plan))]
    out.line(f"const int first_{n} = {total(first)};")
    a = [(1, "tiles"), (1, f"consumer_{m} * {plan.tile[0] * SWIZZLE_BYTES}" if rows > 1 else "0")]
    each = "B_BYTES" if plan.b_in_rows else f"{plan.panels} * PANEL_BYTES" if plan.panels > 1 else "PANEL_BYTES"
    b = [(1, "tiles + A_BYTES"), (1, f"consumer_{n} * {each}" if columns > 1 else "0")]
    out.line(f"const unsigned a_first = {total(a)}, b_first = {total(b)};")


def _write_all_products(out: Writer, plan: WgmmaPlan) -> None:
    """Write the multiply-adds of all steps of the reduction.

    If blocks share out steps, the first step of a share is separate: its wgmma instructions write the sums without reading them,
    which the assembler sees. So the registers of the sums are free while parts of other shares are added up.
    """
    if plan.shares_steps:
        with out.block(""):
            _write_products(out, plan, "point > 0", None)
        with _over_steps(out, plan, "first_step + 1"):
            _write_products(out, plan, "true", "")
        return
    first = "first_step" if plan.slices > 1 else "0"
    with _over_steps(out, plan):
        add = f"point > 0 || step > {first}" if plan.steps > 1 else "point > 0"
        _write_products(out, plan, add, f"step > {first}" if plan.steps > 1 else None)


def _write_products(out: Writer, plan: WgmmaPlan, add: str, follows: str | None) -> None:
    """Write the multiply-adds of one stage of the ring, and the release of the previous step's stage.

    `add` is the C condition under which products are added to the sums instead of overwriting them. `follows` is the C condition
    under which there is a previous step: empty if there always is, None if there never is.
    """
    out.line("barrier_wait(full + stage * 8, parity);")
    out.line("const unsigned a_tile = a_first + stage * STAGE_BYTES, b_tile = b_first + stage * STAGE_BYTES;")
    out.line("wgmma_fence();")
    with out.nest([Loop("point", "POINTS"), Loop("rows", "ROW_BLOCKS")]):
        step_bytes = plan.depth * plan.item
        out.line(f"const unsigned a = a_tile + rows * {WGMMA_ROWS * SWIZZLE_BYTES} + point * {step_bytes};")
        out.line(f"const unsigned b = b_tile + point * {plan.b_point_bytes};")
        multiply, b_lies = multiply_name(plan.op.dtype, plan.b_in_rows), "B_ROWS" if plan.b_in_rows else "B_PANELS"
        out.line(f"{multiply}(acc[rows], A_ROWS | (a >> 4 & 0x3fff), {b_lies} | (b >> 4 & 0x3fff), {add});")
    out.line("wgmma_commit();")
    if plan.stages == 1:
        out.line("wgmma_wait<0>();")
        write_release(out, plan.cluster, "stage")
    else:
        out.line("wgmma_wait<1>();  // the products of the step before are done")
        if follows is not None:
            write_release(out, plan.cluster, "before", follows)
        out.line("before = stage;")
    write_next_stage(out)


@contextmanager
def _over_work(out: Writer, plan: WgmmaPlan, own: bool = False) -> Iterator[None]:
    """Write the lines of the `with` block for each tile (and slice of the reduction) that this block computes.

    Declarations of the tile's first indices come before. A persistent block loops over several tiles, and so does a block with a
    share of the steps. With `own`, the tiles are those of one of two alternating consumers.
    """
    if own:
        with over_own_tiles(out, plan) as work:
            write_block_tile(out, plan, work)
            yield
        return
    if plan.shares_steps:
        with over_share(out, plan) as tile:
            write_block_tile(out, plan, tile)
            yield
        return
    with ExitStack() as stack:
        share = " / CLUSTER" if plan.cluster > 1 else ""
        work = f"blockIdx.x{share}"
        if plan.persistent:
            head = f"for (int work = {work}; work < WORK; work += gridDim.x{share})"
            work = "work"
            stack.enter_context(out.block(head))
        write_block_tile(out, plan, work)
        if plan.slices > 1:
            index = f"{work} / TILES" if plan.tiles > 1 else work
            out.line(f"const int slice = {index};")
            out.line("const int first_step = slice * STEPS / SLICES, last_step = (slice + 1) * STEPS / SLICES;")
        yield


@contextmanager
def _over_steps(out: Writer, plan: WgmmaPlan, first: str = "first_step") -> Iterator[None]:
    """Write a loop over the reduction steps of this block's slice or share around the lines of the `with` block.

    The number of steps is at least one, but unknown at compile time. NVRTC would unroll such a loop and put the remaining steps
    in a second loop. If later code does more than store the sums, the assembler then makes wgmma instructions wait for each other
    (C7514, C7520).
    """
    if plan.slices > 1 or plan.shares_steps:
        out.line("#pragma unroll 1")
        head = f"for (int step = {first}; step < last_step; ++step)"
    else:
        head = "for (int step = 0; step < STEPS; ++step)" if plan.steps > 1 else ""
    with out.block(head):
        yield
