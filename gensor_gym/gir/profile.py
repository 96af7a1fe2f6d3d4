"""Counts of instructions, loads, stores and registers of every pass over a row.

They depend only on the memory levels of values, so the analytic model computes them once for all vector widths and tile sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gensor_gym.dataflow.expressions import Call, Expression, Operand, divisors, walk
from gensor_gym.gir.igraph import Instruction, KernelGraph, Pass
from gensor_gym.gir.lowering import Lowered, lower
from gensor_gym.gir.nest import Online, RowNest
from gensor_gym.gir.placement import Level, Placement

KINDS = ("simple", "divide", "root", "exp", "fraction", "log")
"""Kinds of scalar functions by their cost.

simple: sums, products and choices; divide: quotients; root: square roots; exp: exponentials; fraction: functions of a few
polynomials (tanh, erf, logarithms); log: sines, cosines and similar functions, which are computed lane by lane.
"""
_KIND = {
    "divide": "divide", "sqrt": "root", "rsqrt": "root", "exp": "exp", "tanh": "fraction", "erf": "fraction", "log": "fraction",
    "sin": "log", "cos": "log", "expm1": "exp", "log1p": "fraction", "atan": "log", "erfc": "log",
    "lgamma": "log", "fmod": "fraction",
}  # fmt: skip


@dataclass(frozen=True)
class PassProfile:
    """Counts of instructions and memory accesses in one pass over a row's columns, for each vector of a row."""

    counts: tuple[float, ...]
    """Number of scalar functions of each kind in `KINDS`."""
    reductions: int
    online: int
    """Number of reductions that are online sums."""
    inputs: float
    """Number of loads from tensors in DRAM that no earlier pass of the kernel read."""
    again: float
    """Number of loads from tensors in DRAM that an earlier pass of the kernel read, or that are equal for all rows."""
    outputs: float
    """Number of stores to outputs."""
    spills: float
    """Number of stores to tensors that a later kernel reads."""
    scratch: float
    """Number of loads and stores of row buffers in SRAM."""
    gathers: float
    """Number of loads and stores with strided columns, except the loads in `turned`."""
    turned: tuple[int, ...]
    """Distance between columns in memory, for each load whose rows are contiguous and whose columns are not."""
    live: int
    """Most vectors that are in registers at once, for each row and vector of a step."""


@dataclass(frozen=True)
class KernelProfile:
    """Counts of instructions and tensors of one kernel."""

    passes: tuple[PassProfile, ...]
    numbers: tuple[float, ...]
    """Number of scalar functions of each kind in `KINDS` that run once per row; inverses of divisors count as quotients."""
    folds: int
    """Number of reductions."""
    pointers: int
    """Number of pointers to tensors that are computed for each row."""
    rows_touched: int
    """Number of tensors and row buffers that a step reads or writes as whole rows."""


@dataclass(frozen=True)
class Profile:
    """Counts of instructions and storage of all kernels of a fused operator, for one choice of memory levels."""

    kernels: tuple[KernelProfile, ...]
    registered: int
    """Number of values that a kernel keeps in registers as whole rows, in the kernel with most of them."""
    buffered: int
    """Number of row buffers in SRAM, in the kernel with most of them."""
    spilled: int
    """Number of elements of tensors that one kernel writes for a later kernel."""
    fault: str


def profile_of(nest: RowNest, placement: Placement) -> Profile:
    """Count the instructions and the storage of a row nest (a fused operator as loops over rows and columns).

    `placement` has the memory level of each value that several passes read.
    """
    lowered = lower(nest, placement)
    wide = [kernel.buffers(Level.REG) for kernel in lowered.kernels]
    return Profile(
        tuple(_kernel(lowered, kernel) for kernel in lowered.kernels),
        max(sum(buffer.elements > 0 for buffer in buffers) for buffers in wide),
        max(len(kernel.buffers(Level.SRAM)) for kernel in lowered.kernels),
        sum(buffer.elements for buffer in lowered.spilled),
        lowered.fault,
    )


def counts_of(expression: Expression, once: frozenset[str] = frozenset()) -> dict[str, float]:
    """Count the scalar functions of an expression by kind (`KINDS`).

    A division by an operand in `once` counts as a product, because its inverse is computed only once per row.
    """
    found = dict.fromkeys(KINDS, 0.0)
    for part in walk(expression):
        if not isinstance(part, Call):
            continue
        kind = _KIND.get(part.function, "simple")
        divisor = part.arguments[-1]
        if kind == "divide" and isinstance(divisor, Operand) and divisor.name in once:
            kind = "simple"
        found[kind] += 1
    return found


def _kernel(lowered: Lowered, kernel: KernelGraph) -> KernelProfile:
    read: set[str] = set()
    passes = [_pass(lowered, one, read) for one in kernel.passes]
    once = [i for i in kernel.before + tuple(i for one in kernel.passes for i in one.after) if i.kind == "map"]
    numbers = _sums(counts_of(i.body) for i in once)  # type: ignore[arg-type]
    inverses = {name for one in kernel.passes for i in one.along if i.kind == "map" for name in _inverted(i)}
    numbers["divide"] += len(inverses)
    places = {part for i in kernel.instructions() for part in (i.target, *(s for _, s in i.sources))}
    tensors = {part.access for part in places if part.access is not None}
    buffers = {part.buffer.name for part in places if part.wide and part.buffer.level is not Level.REG}
    folds = sum(one.reductions for one in passes)
    return KernelProfile(tuple(passes), tuple(numbers.values()), folds, len(tensors), len(buffers))


def _sums(counts: object) -> dict[str, float]:
    total = dict.fromkeys(KINDS, 0.0)
    for one in counts:  # type: ignore[attr-defined]
        for kind, value in one.items():
            total[kind] += value
    return total


def share_of(nest: RowNest, one: Instruction) -> float:
    """Return the fraction of the rows in which an instruction runs; below 1 if rows that repeat a result are skipped."""
    return 1.0 / math.prod(nest.row_extents[axis] for axis in one.once)


def _mapped(nest: RowNest, one: Instruction) -> dict[str, float]:
    """Count the scalar functions of a `map` instruction by kind, on average over all rows."""
    counts = counts_of(one.body, frozenset(_inverted(one)))  # type: ignore[arg-type]
    return {kind: value * share_of(nest, one) for kind, value in counts.items()}


def _inverted(one: Instruction) -> set[str]:
    """Return the names of the scalars of a row by which a `map` instruction divides. Their inverses are computed once per row."""
    narrow = {name for name, part in one.sources if not part.wide}
    assert isinstance(one.body, Expression)
    return narrow.intersection(divisors(one.body))


def _pass(lowered: Lowered, one: Pass, read: set[str]) -> PassProfile:
    """Count the instructions of one pass over a row's columns.

    `read` names the tensors that earlier passes of the kernel accessed; the tensors of this pass are added to it.
    """
    own = {value.name for value in lowered.nest.graph.inputs} | set(lowered.nest.graph.returns)
    tally: dict[str, float] = dict.fromkeys(("inputs", "again", "outputs", "spills", "scratch", "gathers"), 0)
    seen: set[str] = set()
    turned: tuple[int, ...] = ()
    for i in one.along:
        if i.kind != "move":
            continue
        for part, loads in ((i.sources[0][1], True), (i.target, False)):
            name, level = part.buffer.name, part.buffer.level
            if level is Level.SRAM:
                tally["scratch"] += share_of(lowered.nest, i)
            elif level is Level.DRAM:
                column = 1 if part.access is None else part.access.column
                if loads and part.access is not None and part.access.is_turned and not i.once:
                    turned += (column,)
                else:
                    tally["gathers"] += column != 1
                seen.add(name)
                same = part.access is not None and part.access.is_same
                kind = ("again" if name in read or same else "inputs") if loads else "outputs" if name in own else "spills"
                tally[kind] += share_of(lowered.nest, i)
    read |= seen
    counts = _sums(_mapped(lowered.nest, i) for i in one.along if i.kind == "map")
    reductions = [i for i in one.along if i.kind == "reduce"]
    online = sum(isinstance(i.body, Online) for i in reductions)
    return PassProfile(tuple(counts.values()), len(reductions), online, **tally, turned=turned, live=_live(one.along))


def _live(along: tuple[Instruction, ...]) -> int:
    """Return the number of vector registers that one pass over a row needs.

    It is the largest number of vectors that are live at an instruction, plus the accumulators of all reductions.
    """
    last: Mapping[str, int] = {name: place for place, i in enumerate(along) for name, part in i.sources if part.wide}
    made: dict[str, int] = {}
    most = 0
    for place, i in enumerate(along):
        if i.kind in ("map", "move") and i.target.buffer.level is Level.REG:
            made[i.cell] = place
        most = max(most, sum(1 for name in made if last.get(name, -1) >= place))
    return most + sum(2 if isinstance(i.body, Online) else 1 for i in along if i.kind == "reduce")
