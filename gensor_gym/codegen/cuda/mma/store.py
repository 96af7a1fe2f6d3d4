"""C text that applies the epilogue to a warp's sums in registers and stores the results."""

from __future__ import annotations

from contextlib import ExitStack

from gensor_gym.codegen.cuda.index import in_tile, make_site, origin, spatial_loops
from gensor_gym.codegen.cuda.mma.compute import repeat_indices
from gensor_gym.codegen.cuda.mma.plan import MatrixPlan
from gensor_gym.codegen.cuda.simt.store import declare_index, write_operand, write_run
from gensor_gym.codegen.cuda.text import Loop, Writer, subscript, total
from gensor_gym.operators.types import Access

_WIDEST = 16
"""Number of bytes of the widest store."""


def write_results(out: Writer, plan: MatrixPlan) -> None:
    """Write the stores of every lane's sums.

    They are runs of adjacent elements along n, in two of the 16 rows of sums that an instruction computes.
    """
    width = store_width(plan)
    with ExitStack() as stack:
        indices = _enter_repeats(out, plan, stack)
        _enter_row(out, plan, stack, indices)
        run = 2 * plan.interleave
        groups = plan.n_tiles // plan.interleave
        loops = [Loop("group", str(groups))] if groups > 1 else []
        loops += [Loop("part", str(run), width)] if run > width else []
        stack.enter_context(out.nest(loops))
        _enter_column(out, plan, stack, indices, groups, run > width)
        write_run(
            out, plan, indices, width, "i", lambda lane: _sum(plan, lane, width),
            lambda access: _operand(out, plan, access, indices, width),
        )  # fmt: skip


def store_width(plan: MatrixPlan) -> int:
    """Return the number of adjacent elements along n that one store writes."""
    op, n = plan.op, plan.roles.n
    item = 4 if plan.slices > 1 or op.output.dtype in ("float32", "int32") else 2
    return next(w for w in (4, 2, 1) if w * item <= _WIDEST and 2 * plan.interleave % w == 0 and _lies(plan, op.write, n, w))


def _lies(plan: MatrixPlan, access: Access, axis: int, width: int) -> bool:
    """Return whether `width` adjacent elements along an axis are an aligned vector, all inside or all outside the tensor."""
    strides = access.axis_strides()
    live = [a for a in plan.op.spatial if a != axis and (plan.op.extents[a] > 1 or plan.block[a] > 1)]
    base = sum(stride * offset for stride, offset in zip(access.strides(), access.offset, strict=True))
    sizes = [plan.op.extents[axis], base, *(strides[a] for a in live)]
    return width == 1 or (strides[axis] == 1 and all(size % width == 0 for size in sizes))


def _enter_repeats(out: Writer, plan: MatrixPlan, stack: ExitStack) -> list[str]:
    site, indices = make_site(plan), ["0"] * len(plan.names)
    for a in plan.repeats:
        stack.enter_context(out.nest(spatial_loops(plan, (a,))))
        declare_index(out, plan, stack, indices, a, total([(1, origin(plan, a)), (1, in_tile(plan, a, site))]))
    return indices


def _enter_row(out: Writer, plan: MatrixPlan, stack: ExitStack, indices: list[str]) -> None:
    m = plan.roles.m
    stack.enter_context(out.nest([*([Loop("tile_m", "M_TILES")] if plan.m_tiles > 1 else []), Loop("half", "2")]))
    tile_m = "tile_m" if plan.m_tiles > 1 else "0"
    terms = [(1, origin(plan, m)), (1, _first(plan, m)), (16, tile_m), (8, "half"), (1, "lane / 4")]
    declare_index(out, plan, stack, indices, m, total(terms))


def _enter_column(out: Writer, plan: MatrixPlan, stack: ExitStack, indices: list[str], groups: int, parts: bool) -> None:
    n, run = plan.roles.n, 2 * plan.interleave
    terms = [(1, origin(plan, n)), (1, _first(plan, n)), (4 * run, "group" if groups > 1 else "0")]
    terms += [(run, "lane % 4"), (1, "part" if parts else "0")]
    declare_index(out, plan, stack, indices, n, total(terms))


def _first(plan: MatrixPlan, axis: int) -> str:
    return f"first_{plan.names[axis]}" if plan.program.threads[axis] > 1 else "0"


def _sum(plan: MatrixPlan, lane: str, width: int) -> str:
    """Return the C text of the accumulator that a store writes as element `lane`.

    Element e of a run is column e / interleave of instruction e % interleave.
    """
    run, each = 2 * plan.interleave, plan.interleave
    groups = plan.n_tiles // each
    place = total([(1, "part" if run > width else "0"), (1, lane)])
    group = total([(each, "group" if groups > 1 else "0")])
    if each == 1:
        tile_n, column = group, place
    elif place.isdigit():
        tile_n, column = total([(1, group)], int(place) % each), str(int(place) // each)
    else:
        tile_n, column = total([(1, group), (1, f"({place}) % {each}")]), f"({place}) / {each}"
    tile_m = "tile_m" if plan.m_tiles > 1 else "0"
    return subscript("sums", [*repeat_indices(plan), tile_m, tile_n, f"half * 2{'' if column == '0' else f' + {column}'}"])


def _operand(out: Writer, plan: MatrixPlan, access: Access, indices: list[str], width: int) -> str:
    n = plan.roles.n
    together = access.axis_strides()[n] and _lies(plan, access, n, width)
    return write_operand(out, access, indices, n, "i" if width > 1 else "0", width if together else 1)
