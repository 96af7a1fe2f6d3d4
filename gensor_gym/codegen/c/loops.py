"""C text of a task's loops over L1 tiles and register tiles, and of the calls of the micro-kernel's variants."""

from __future__ import annotations

from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.micro.kernel import flags, parameters
from gensor_gym.codegen.c.operand import bounds, count, guard_name, has_guard_field, is_split, tile_start
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.text import Lines, add, linear
from gensor_gym.codegen.c.variants import Variant, guarded, overhanging


def register_tiles(lines: Lines, plan: LoopPlan, kinds: list[Variant]) -> None:
    """Write the loops over all register tiles of one block of the reduction.

    `kinds` are the variants of the micro-kernel. Each register tile calls the first variant that fits.
    """
    heads, inner = _l1_loops(plan)
    with lines.blocks(heads):
        lines.add(*inner)
        with lines.blocks(_register_loops(plan)):
            for a in plan.op.spatial:
                if plan.moves_back(a):
                    end = f"{_local_count(plan, a)} - {plan.tiles[0][a]}"
                    lines.add(f"const long {plan.axes[a]} = least({plan.axes[a]}_tile, {end});")
            call_tile(lines, plan, kinds)


def _local_count(plan: LoopPlan, axis: int) -> str:
    return count(plan, axis).replace("t->", "t.")


def _l1_loops(plan: LoopPlan) -> tuple[list[str], list[str]]:
    """Return the loops over L1 tiles as C text.

    The result is (heads of the loops in the order of the knob `loop_order`, declarations inside the innermost loop).
    """
    others = [a for a in plan.op.spatial if a != plan.vector]
    vector = [a for a in plan.op.spatial if a == plan.vector]
    reduce = list(plan.op.reduce)
    outer_vector = plan.program.knob("loop_order") == 0
    order = [*vector, *reduce, *others] if outer_vector else [*others, *reduce, *vector]
    heads, inner = [], []
    for a in order:
        name, size = plan.axes[a], plan.tiles[1][a]
        if a in plan.op.reduce:
            if is_split(plan, a):
                begin, end = f"{name}_begin", _local_count(plan, a)
                heads.append(f"for (long {begin} = 0; {begin} < {end}; {begin} += {size})")
                inner.append(f"const long {name}_end = least({begin} + {size}, {end});")
            elif not bounds(plan, a)[1].isdigit():
                inner.append(f"const long {name}_end = {_local_count(plan, a)};")
        elif _has_l1_loop(plan, a):
            heads.append(f"for (long {name}_l1 = 0; {name}_l1 < {_local_count(plan, a)}; {name}_l1 += {size})")
    return heads, inner


def _has_l1_loop(plan: LoopPlan, axis: int) -> bool:
    return plan.tiles[2][axis] > plan.tiles[1][axis]


def _register_loops(plan: LoopPlan) -> list[str]:
    others = [a for a in plan.op.spatial if a != plan.vector]
    vector = [a for a in plan.op.spatial if a == plan.vector]
    order = [*vector, *others] if plan.program.knob("loop_order") == 0 else [*others, *vector]
    heads = []
    for a in order:
        if not plan.moves(a):
            continue
        step, end = plan.tiles[0][a], _local_count(plan, a)
        begin, name = f"{plan.axes[a]}_l1", f"{plan.axes[a]}_tile" if plan.moves_back(a) else plan.axes[a]
        if not _has_l1_loop(plan, a):
            heads.append(f"for (long {name} = 0; {name} < {end}; {name} += {step})")
            continue
        limit = f"least({begin} + {plan.tiles[1][a]}, {end})"
        heads.append(f"for (long {name} = {begin}; {name} < {limit}; {name} += {step})")
    return heads


def call_tile(lines: Lines, plan: LoopPlan, kinds: list[Variant], *more: str) -> None:
    """Write the call of the first variant of a register tile that fits, with the C texts `more` as further arguments."""
    values = ", ".join(["&t", *more, *parameters(plan), *_flag_values(plan)])
    *first, last = kinds
    for kind in first:
        lines.add(f"if ({' && '.join(_tests(plan, kind))})", f"    {kind.name}({values});", "else")
    lines.add(f"{'    ' if first else ''}{last.name}({values});")


def _tests(plan: LoopPlan, kind: Variant) -> list[str]:
    """Return the C conditions under which a variant of the micro-kernel fits the current register tile.

    They assume that no earlier variant fits.
    """
    if kind.edge:
        width = kind.plan.tiles[0][plan.vector]
        return [f"{_local_count(plan, plan.vector)} <= {linear([(1, tile_start(plan, plan.vector))], width)}"]
    ends = {plan.shortened} if kind.plan.full else set()
    tests = [_whole(plan, a) for a in overhanging(plan) if a not in ends]
    for operand, d in guarded(plan):
        tests += _in_view(plan, operand, d)
    return tests


def _flag_values(plan: LoopPlan) -> list[str]:
    first, last = [], []
    if plan.reduce_blocks > plan.splits:
        first.append("block == first_block")
        last.append("block == end_block - 1")
    for a in plan.op.reduce:
        if is_split(plan, a):
            begin, end = bounds(plan, a)
            first.append(f"{begin} == 0")
            last.append(f"{end} == {_local_count(plan, a)}")
    values = {"first": " && ".join(first), "last": " && ".join(last)}
    return [values[name] for name in flags(plan)]


def _whole(plan: LoopPlan, axis: int) -> str:
    """Return the C condition that the current register tile does not extend past the end of a spatial axis."""
    start = tile_start(plan, axis)
    return f"{add(start, str(plan.tiles[0][axis]))} <= {_local_count(plan, axis)}"


def _in_view(plan: LoopPlan, operand: Operand, dimension: int) -> list[str]:
    coefficients, access = operand.access.coefficients[dimension], operand.access
    low_span, high_span = access.span(dimension, plan.op.extents)
    field = has_guard_field(plan, operand, dimension)
    origin = f"t.{guard_name(operand, dimension)}" if field else str(access.offset[dimension])
    spatial = [(coefficients[a], tile_start(plan, a)) for a in plan.op.spatial]
    lows = spatial + [(coefficients[a], bounds(plan, a)[0]) for a in plan.op.reduce]
    highs, reach = list(spatial), sum(coefficients[a] * (plan.tiles[0][a] - 1) for a in plan.op.spatial)
    for a in plan.op.reduce:
        end = bounds(plan, a)[1]
        reach += coefficients[a] * (int(end) - 1 if end.isdigit() else -1)
        highs += [] if end.isdigit() else [(coefficients[a], end)]
    tests = [f"{add(origin, linear(lows))} >= 0"] if low_span < 0 else []
    limit = linear(highs, reach)
    return tests + ([f"{add(origin, limit)} < {access.view[dimension]}"] if high_span >= access.view[dimension] else [])
