"""Variants of the micro-kernel: one for register tiles inside every tensor, guarded and smaller ones for tiles at an edge."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.operand import is_fixed, is_fixed_dimension, is_split
from gensor_gym.codegen.c.plan import LoopPlan, vector_chunks
from gensor_gym.codegen.c.text import round_up


@dataclass(frozen=True)
class Variant:
    """A variant of the micro-kernel: name of its C function, plan with its width, and whether it guards accesses (`edge`)."""

    name: str
    plan: LoopPlan
    edge: bool


def variants(plan: LoopPlan) -> list[Variant]:
    """Return the variants of the micro-kernel that some register tile needs.

    The interior variant is first, then one with fewer rows (`LoopPlan.shortened`), then edge variants, the narrowest first.
    """
    found = []
    possible = all(plan.op.extents[a] >= plan.tiles[0][a] for a in overhanging(plan))
    if possible and all(_fits(plan, operand, d) for operand, d in guarded(plan)):
        found.append(Variant("register_tile", plan, False))
    if found and plan.shortened >= 0:
        rest = plan.op.extents[plan.shortened] % plan.tiles[0][plan.shortened]
        found.append(Variant("register_tile_short", _smaller(plan, plan.shortened, rest), False))
    width, widths = plan.tiles[0][plan.vector], _edge_widths(plan)
    for narrow in sorted(widths - {width}):
        found.append(Variant(f"register_tile_edge_{narrow}", _smaller(plan, plan.vector, narrow), True))
    others = any(a not in (plan.vector, plan.shortened) for a in overhanging(plan))
    if width in widths or others or guarded(plan):
        found.append(Variant("register_tile_edge", plan, True))
    return found


def overhanging(plan: LoopPlan) -> list[int]:
    """Return the spatial axes along which some, but not all, register tiles extend past the end."""
    return [a for a in plan.op.spatial if plan.overhangs(a) and not is_fixed(plan, a)]


def guarded(plan: LoopPlan) -> list[tuple[Operand, int]]:
    """Return (operand, dimension) of every index that is outside the view in some register tiles but not in all."""
    return [(read, d) for read in plan.reads for d in read.guarded if not is_fixed_dimension(plan, read, d)]


def _fits(plan: LoopPlan, operand: Operand, dimension: int) -> bool:
    """Return whether a register tile can read a dimension of an operand without reaching outside the view."""
    row = operand.access.coefficients[dimension]
    reach = 1
    for a, c in enumerate(row):
        size = plan.tiles[0][a] if a in plan.op.spatial else min(plan.tiles[1][a], plan.op.extents[a])
        reach += c * (size - 1) if a in plan.op.spatial or not is_split(plan, a) else 0
    return reach <= operand.access.view[dimension]


def _edge_widths(plan: LoopPlan) -> set[int]:
    """Return the widths of narrower register tiles at the ends of tasks along the vector axis, in lanes, as whole vectors."""
    axis, width, lanes = plan.vector, plan.tiles[0][plan.vector], plan.program.hardware.lanes
    if axis not in overhanging(plan):
        return set()
    extent, task = plan.op.extents[axis], plan.tiles[2][axis]
    rests = {count % width for count in (min(task, extent), extent % task)} - {0}
    return {min(width, round_up(rest, lanes)) for rest in rests}


def _smaller(plan: LoopPlan, axis: int, size: int) -> LoopPlan:
    """Return the plan of register tiles that have the last elements of an axis; `size` is their number along it."""
    register = tuple(size if a == axis else tile for a, tile in enumerate(plan.tiles[0]))
    chunks = vector_chunks(register[plan.vector], plan.program.hardware.lanes)
    return replace(plan, tiles=(register, *plan.tiles[1:]), chunks=chunks, full=plan.tiles[0])
