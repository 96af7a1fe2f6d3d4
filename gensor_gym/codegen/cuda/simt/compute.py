"""C text of a thread's computation: its accumulators, and their update at each reduction point."""

from __future__ import annotations

from gensor_gym.codegen.cuda.index import make_site, neutral, spatial_loops
from gensor_gym.codegen.cuda.map import map_value
from gensor_gym.codegen.cuda.plan import BlockPlan
from gensor_gym.codegen.cuda.simt.fragment import fragment_axes, subscripts
from gensor_gym.codegen.cuda.text import SCALARS, Loop, Writer, subscript
from gensor_gym.operators.bodies import BODIES


def write_accumulators(out: Writer, plan: BlockPlan) -> None:
    """Write the declaration of the accumulators, with the reduction's identity as initial value.

    For an elementwise operator they have no initial value.
    """
    kind, sizes = SCALARS[plan.op.accumulator].name, [f"REG_{plan.names[a].upper()}" for a in wide_axes(plan)]
    if not sizes and plan.op.body != "map":
        out.line(f"{kind} acc = {neutral(plan)};")
        return
    out.line(f"{kind} {subscript('acc', sizes)};")
    if plan.op.body == "map":
        return
    with out.nest(spatial_loops(plan, plan.op.spatial)):
        out.line(f"{accumulator(plan)} = {neutral(plan)};")


def wide_axes(plan: BlockPlan) -> tuple[int, ...]:
    """Return the spatial axes along which a thread computes more than one element: the dimensions of the array `acc`."""
    return tuple(a for a in plan.op.spatial if plan.register[a] > 1)


def accumulator(plan: BlockPlan, lane_axis: int = -1, width: int = 1, lane: str = "0") -> str:
    """Return the C text of the accumulator of element `lane` in a group of `width` elements along `lane_axis`."""
    site = make_site(plan, lane_axis, width, lane)
    return subscript("acc", [site.index(a) for a in wide_axes(plan)])


def write_accumulation(out: Writer, plan: BlockPlan) -> None:
    """Write the update of every accumulator at the current reduction points (combinations of reduction indices)."""
    op = plan.op
    site = make_site(plan, point_lane="lane" if plan.points.width > 1 else "0")
    operands = [
        subscript(f"{read.tensor.name}_reg", subscripts(plan, site, fragment_axes(plan, index)))
        for index, read in enumerate(op.reads)
    ]
    target = accumulator(plan)
    loops = spatial_loops(plan, op.spatial)
    if plan.points.width > 1:
        loops.append(Loop("lane", str(plan.points.width)))
    if op.body == "map":
        statement = f"{target} = {map_value(op, operands)};"
    else:
        term, infix = BODIES[op.body].term.format(*operands), op.reduction.infix
        statement = f"{target} {infix}= {term};" if infix else f"{target} = {combine(plan, target, term)};"
    with out.nest(loops):
        out.line(statement)


def combine(plan: BlockPlan, left: str, right: str) -> str:
    """Return the C text that combines two partial results by the operator's reduction."""
    join = plan.op.reduction
    if join.infix:
        return f"{left} {join.infix} {right}"
    floats, name = plan.op.accumulator == "float32", join.name.removesuffix("imum")  # fmaxf, and max of integers
    return f"f{name}f({left}, {right})" if floats else f"{name}({left}, static_cast<int>({right}))"
