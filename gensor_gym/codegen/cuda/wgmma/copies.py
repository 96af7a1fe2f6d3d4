"""C text of the copies that fill a stage of a wgmma kernel: boxes of A, and panels or boxes of B."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from types import MappingProxyType

from gensor_gym.codegen.cuda.index import along, origin
from gensor_gym.codegen.cuda.text import Writer, remainder, total
from gensor_gym.codegen.cuda.wgmma.convolution import ConvolutionPlan
from gensor_gym.codegen.cuda.wgmma.plan import WgmmaPlan
from gensor_gym.codegen.cuda.wgmma.rows import RowsPlan
from gensor_gym.graph.matrices.lying import SWIZZLE_BYTES
from gensor_gym.operators.types import Access


def write_copies(out: Writer, plan: WgmmaPlan) -> None:
    """Write the copies that fill one stage of the ring with tiles of A and B."""
    if isinstance(plan, ConvolutionPlan):
        _write_weights(out, plan)
        _write_boxes(out, plan, list(_boxes(plan)))
    else:
        _write_products(out, plan)


def _write_products(out: Writer, plan: WgmmaPlan) -> None:
    """Write the copies of a matrix product into one stage.

    A is copied in boxes of rows, and B in panels or, if it was transposed, in boxes of rows.
    """
    a, b, *_ = plan.mapped
    m, n = origin(plan, plan.roles.m), origin(plan, plan.roles.n)
    batch_a, batch_b = (_batch(plan, plan.op.reads[t]) for t in (plan.roles.a, plan.roles.b))
    load_a, load_b = (f"load_box_{len(each.shape)}d" for each in plan.operand_maps)
    step = f"step * STEP_{plan.names[plan.roles.k].upper()}" if plan.steps > 1 else "0"
    for row in range(0, plan.block[plan.roles.m], plan.box_rows):
        place = ", ".join([step, total([(1, m)], row), *batch_a])
        out.line(f"{load_a}({total([(1, 'a_tile')], row * SWIZZLE_BYTES)}, {a}_map, ready, {place});")
    if isinstance(plan, RowsPlan):
        places = ((c, ", ".join([step, total([(1, n)], c), *batch_b])) for c in range(0, plan.columns, plan.box_columns))
        _write_boxes(out, plan, [(total([(1, "b_tile")], c * SWIZZLE_BYTES), place) for c, place in places])
        return
    copy, to_all, first, share = load_b, "", step, "b_tile"
    if plan.cluster > 1:
        copy, to_all, first, share = f"multicast_box_{len(plan.operand_maps[1].shape)}d", "EVERY_BLOCK, ", "b_row", "b_share"
        k = plan.names[plan.roles.k].upper()
        out.line(f"const int b_row = {total([(1, step), (1, f'rank * (STEP_{k} / CLUSTER)')])};  // of this block's share")
        out.line("const unsigned b_share = b_tile + rank * (PANEL_BYTES / CLUSTER);")
    for number, (_, column, batch) in enumerate(_panels(plan)):
        to = f"{share} + {number} * PANEL_BYTES" if number else share
        out.line(f"{copy}({to}, {b}_map, ready, {to_all}{', '.join([column, first, *batch])});")


def _panels(plan: WgmmaPlan) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (byte offset, first column, coordinates of the matrix in a batch) of B's panels, in the order of consumers."""
    n, *images = reversed(plan.column_axes)
    counts = [(plan.program.threads[a], plan.register[a]) for a in images] or [(1, 1)]
    (along_images, each), panels = counts[0], -(-plan.register[n] // plan.panel)
    order = product(range(along_images), range(plan.program.threads[n]), range(each), range(panels))
    for number, (block, consumer, image, panel) in enumerate(order):
        column = total([(1, origin(plan, n))], consumer * plan.register[n] + panel * plan.panel)
        nth = {a: block * each + image for a in images}
        yield number * plan.panel_bytes, column, _batch(plan, plan.op.reads[plan.roles.b], nth)


def _batch(plan: WgmmaPlan, read: Access, nth: Mapping[int, int] = MappingProxyType({})) -> list[str]:
    """Return the coordinates of the block's matrix in a batch, as C text; empty if there is only one matrix.

    `nth` maps some axes to a distance that is added to the coordinate along the axis.
    """
    origins = [total([(1, origin(plan, a))], nth.get(a, 0)) for a in range(len(plan.op.axes))]
    return [along(read, d, origins) for d in reversed(range(len(read.view) - 2))]


def write_window(out: Writer, plan: ConvolutionPlan) -> None:
    """Write declarations of `block_<axis>`, the first channel and the window element of a step.

    The window element runs fastest.
    """
    divisor, reduce = plan.steps, [a for a in plan.op.reduce if plan.program.grid[a] > 1]
    for a in reduce:
        count, name = plan.program.grid[a], plan.names[a]
        divisor //= count
        index = remainder("step", divisor, 0 if a == reduce[0] else count)
        scale = f" * STEP_{name.upper()}" if plan.block[a] > 1 else ""
        out.line(f"const int block_{name} = {index}{scale};")


def _write_weights(out: Writer, plan: ConvolutionPlan) -> None:
    """Write the copies of a convolution's weights (A): boxes of rows, one step of channels long, at one element of the window."""
    r, s = (origin(plan, a) for a in plan.taps)
    channel, m = origin(plan, plan.roles.k), origin(plan, plan.roles.m)
    for row in range(0, plan.block[plan.roles.m], plan.box_rows):
        place = ", ".join([channel, total([(1, m)], row), s, r])
        to = total([(1, "a_tile")], row * SWIZZLE_BYTES)
        out.line(f"load_box_4d({to}, {plan.mapped[0]}_map, ready, {place});")


def _write_boxes(out: Writer, plan: WgmmaPlan, boxes: list[tuple[str, str]]) -> None:
    """Write copies of B in rows of k.

    `boxes` are (target, coordinates) pairs, distributed over the blocks of a cluster.
    """
    name, rank_of_box = plan.mapped[1], f"box_{len(plan.operand_maps[1].shape)}d"
    if plan.cluster == 1:
        for to, place in boxes:
            out.line(f"load_{rank_of_box}({to}, {name}_map, ready, {place});")
        return
    for rank in range(min(plan.cluster, len(boxes))):
        with out.block(f"if (rank == {rank})"):
            for to, place in boxes[rank :: plan.cluster]:
                out.line(f"multicast_{rank_of_box}({to}, {name}_map, ready, EVERY_BLOCK, {place});")


def _boxes(plan: ConvolutionPlan) -> Iterator[tuple[str, str]]:
    """Yield (target, coordinates of the first element) of every box of pixels: by consumer, then image, row and column."""
    counts = [plan.program.threads[a] for a in plan.column_axes]
    lengths = [plan.register[a] for a in plan.column_axes]
    within = [range(0, length, n) for length, n in zip(lengths, plan.box, strict=True)]
    for number, (consumer, first) in enumerate(product(product(*map(range, counts)), product(*within))):
        place = [0] * len(plan.op.axes)
        for a, nth, length, at in zip(plan.column_axes, consumer, lengths, first, strict=True):
            place[a] = nth * length + at
        indices = [total([(1, origin(plan, a))], constant) for a, constant in enumerate(place)]
        n, channel, row, column = (along(plan.pixels, d, indices) for d in range(4))
        to = total([(1, "b_tile")], number * math.prod(plan.box) * SWIZZLE_BYTES)
        yield to, ", ".join([channel, column, row, n])
