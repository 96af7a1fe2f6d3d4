"""Boxes of a tensor that packing copies: the range along each dimension, and addresses in tensor and copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gensor_gym.codegen.c.layout.operands import Operand
from gensor_gym.codegen.c.operand import task_start
from gensor_gym.codegen.c.plan import LoopPlan
from gensor_gym.codegen.c.text import add, ceil_div, linear, round_up


@dataclass(frozen=True)
class Run:
    """One loop of a packing copy: a dimension of the box, or several dimensions that are contiguous in both tensor and copy.

    `low` and `rows` are the box's start and length along it as C texts, `size` is the length of the view. `stride` and `pitch`
    are the distances of adjacent elements in tensor and copy. `checked` means that indices can be outside the view.
    """

    low: str
    rows: str
    size: int
    stride: int
    pitch: int
    checked: bool
    dimension: int


def is_constant(text: str) -> bool:
    """Return whether a C expression is an integer constant."""
    return text.lstrip("-").isdigit()


def parameters(plan: LoopPlan, operand: Operand) -> list[str]:
    """Return the names of the pack function's parameters: starts and lengths of the box that differ between task tiles."""
    names = []
    for d in range(len(operand.access.view)):
        names += [] if is_constant(low_of(plan, operand, d)) else [f"low_{d}"]
        names += [] if is_constant(rows_of(plan, operand, d)) else [f"rows_{d}"]
    return names


def low_of(plan: LoopPlan, operand: Operand, dimension: int) -> str:
    """Return the C text of the index along a dimension of the view at the origin of the task tile."""
    terms = [(c, task_start(plan, a)) for a, c in enumerate(operand.access.coefficients[dimension])]
    return linear(terms, operand.access.offset[dimension])


def rows_of(plan: LoopPlan, operand: Operand, dimension: int) -> str:
    """Return the C text of the packed box's length along a dimension, including the parts of register tiles past the end."""
    constant, terms = 1, []
    for a, c in enumerate(operand.access.coefficients[dimension]):
        if c == 0:
            continue
        known, unit = plan.constant_count(a), 1 if a in plan.op.reduce and a != plan.vector else plan.tiles[0][a]
        if known is not None:
            constant += c * (round_up(known, unit) - 1)
            continue
        name = f"t.{plan.axes[a]}_count"
        whole = unit == 1 or plan.op.extents[a] % unit == 0
        terms.append((c, name if whole else f"(({name} + {unit - 1}) / {unit} * {unit})"))
        constant -= c
    return linear(terms, constant)


def _leaves_view(plan: LoopPlan, operand: Operand, dimension: int) -> bool:
    access, extents = operand.access, list(plan.op.extents)
    for a in range(len(extents)):
        if a in plan.op.spatial or a == plan.vector:
            extents[a] = round_up(extents[a], plan.tiles[0][a])
    low, high = access.span(dimension, tuple(extents))
    return low < 0 or high >= access.view[dimension]


def runs_of(plan: LoopPlan, operand: Operand) -> list[Run]:
    """Return the loops that copy the packed box, outermost first.

    A dimension that is covered completely is merged into the next outer loop.
    """
    packing, access = operand.packing, operand.access
    assert packing is not None
    strides, runs = access.strides(), list[Run]()
    for d, size in enumerate(access.view):
        low, rows = low_of(plan, operand, d), rows_of(plan, operand, d)
        low = low if is_constant(low) else f"low_{d}"
        rows = rows if is_constant(rows) else f"rows_{d}"
        run = Run(low, rows, size, strides[d], packing.pitch[d], _leaves_view(plan, operand, d), d)
        before = runs[-1] if runs and packing.panel not in (d - 1, d) else None
        follows = before is not None and (before.pitch, before.stride) == (size * run.pitch, size * run.stride)
        if before and follows and low == "0" and rows == str(size):
            low, rows, size = _times(before.low, size), _times(before.rows, size), before.size * size
            runs[-1] = Run(low, rows, size, run.stride, run.pitch, before.checked, d)
        else:
            runs.append(run)
    return runs


def _times(text: str, factor: int) -> str:
    return str(int(text) * factor) if is_constant(text) else f"{text} * {factor}"


def loop(n: int, run: Run, step: int = 1) -> str:
    """Return the C head of the loop over a run (one dimension of the box).

    Its variable `i<n>` counts from the start of the box.
    """
    return f"for (long i{n} = 0; i{n} < {run.rows}; i{n}{'++' if step == 1 else f' += {step}'})"


def loops(runs: Sequence[Run]) -> list[str]:
    """Return the C heads of nested loops over runs (dimensions of the box), with the variables i0, i1, ..."""
    return [loop(n, run) for n, run in enumerate(runs)]


def line(runs: Sequence[Run], size: int) -> tuple[str, str]:
    """Return (offset in the tensor, length) of the row at the indices i0, i1, ..., as C texts.

    The length is 0 if the row is outside the view.
    """
    places = [add(run.low, f"i{n}") for n, run in enumerate(runs)]
    start = linear([(run.stride, place) for run, place in zip(runs, places, strict=True)])
    tests = [f"inside({place}, {run.size})" for run, place in zip(runs, places, strict=True) if run.checked]
    return start, f"{' && '.join(tests)} ? {size} : 0" if tests else str(size)


def panel_count(run: Run, width: int) -> str:
    """Return the C text of the number of panels of `width` lanes along a run (a dimension of the box)."""
    return str(ceil_div(int(run.rows), width)) if is_constant(run.rows) else f"{run.rows} / {width}"


def plus(pointer: str, offset: str) -> str:
    """Return the C text of the address `offset` elements after a pointer."""
    return pointer if offset == "0" else f"{pointer} + {offset}"
