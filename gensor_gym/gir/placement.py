"""Storage of values that several passes over a row read: the levels of memory, and the levels that are allowed for each value.

The levels are IntelliGen's (arXiv 2307.04995): registers of a unit, memory of a group, and DRAM, which all kernels share. On a
CPU, a unit is a thread's loop step, registers are vector registers, and SRAM is a row buffer, which stays in the thread's caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.online import online_sums, taken_online


class Level(IntEnum):
    """Where a value is kept from the pass over a row that computes it to a later pass that reads it."""

    DRAM = 0
    """In a tensor. An input is loaded again; a computed value is stored, and the kernel ends after the pass that computes it."""
    RECOMPUTE = 1
    """Nowhere: the value is computed again from its sources."""
    SRAM = 2
    """In a row buffer."""
    REG = 3
    """In vector registers, as a whole row."""
    ONLINE = 4
    """Nowhere: the value is computed again.

    Its sum is computed online, in the pass that finds the maximum (`gir.online`).
    """


Placement = tuple[Level, ...]
"""Memory levels of the values that several passes over a row read (`RowNest.crossing`), in that order."""


def levels_of(nest: RowNest, name: str) -> tuple[Level, ...]:
    """Return the levels at which a schedule may keep the value `name` between passes.

    Inputs cannot be at `RECOMPUTE`, which would be the same as `DRAM`. `ONLINE` is only for exponentials whose sum can be
    computed online.
    """
    if nest.cell[name].is_load:
        return Level.DRAM, Level.SRAM, Level.REG
    return tuple(Level) if online_sums(nest, name) else (Level.DRAM, Level.RECOMPUTE, Level.SRAM, Level.REG)


@dataclass(frozen=True)
class Fetch:
    """A value that one pass over a row stores at a memory level, and that a later pass reads from there."""

    name: str
    level: Level


@dataclass(frozen=True)
class Passes:
    """The values that each pass over a row computes, reads back and stores, for one choice of memory levels."""

    nest: RowNest
    """The row nest, in which the sums of values at level ONLINE are computed online."""
    makes: tuple[tuple[str, ...], ...]
    """Names of the values that each pass loads from inputs or computes, each after its sources."""
    fetches: tuple[tuple[Fetch, ...], ...]
    """Values that each pass reads from the storage of earlier passes."""
    keeps: tuple[tuple[Fetch, ...], ...]
    """Values that each pass stores for later passes."""
    cuts: tuple[int, ...]
    """Indices of the passes after which one kernel ends and the next begins.

    If rows are cut into parts, these are all passes except the last.
    """
    fault: str = ""
    """Reason why the memory levels are illegal: a value in SRAM or registers would be read after its kernel has ended.

    Empty if they are legal.
    """


def passes_of(nest: RowNest, placement: Sequence[Level]) -> Passes:
    """Derive the work of each pass over a row from `placement`, the memory level of each value that several passes read."""
    level = dict(zip(nest.crossing, placement, strict=True))
    nest = taken_online(nest, {name: one is Level.ONLINE for name, one in level.items()})
    made: dict[str, int] = {}
    makes, fetches = [], []
    for number in range(nest.passes):
        own, read = _pass(nest, number, level, made)
        makes.append(own)
        fetches.append(read)
        made |= {name: number for name in own if name not in made}
    fetched = {(fetch.name, number) for number, read in enumerate(fetches) for fetch in read}
    kept = {name for name, _ in fetched}
    keeps = tuple(
        tuple(Fetch(name, level[name]) for name in own if name in kept and made[name] == number)
        for number, own in enumerate(makes)
    )
    cuts = tuple(sorted({made[name] for name in kept if level[name] is Level.DRAM}))
    if nest.parts > 1:
        cuts = tuple(range(nest.passes - 1))
    fault = _fault(level, made, fetched, cuts)
    return Passes(nest, tuple(makes), tuple(map(tuple, fetches)), keeps, cuts, fault)


def _pass(
    nest: RowNest, number: int, level: dict[str, Level], made: dict[str, int]
) -> tuple[tuple[str, ...], tuple[Fetch, ...]]:
    """List the values that pass `number` over a row computes, and those that it reads back.

    Return (names of values that it loads from inputs or computes, values that an earlier pass has stored). `made` maps each known
    value to the pass that first computed it.
    """
    makes: dict[str, None] = {}
    fetches: dict[str, Fetch] = {}

    def need(name: str) -> None:
        if not nest.cell[name].wide or name in makes or name in fetches:
            return
        cell = nest.cell[name]
        kept = level.get(name, Level.RECOMPUTE)
        again = kept in (Level.RECOMPUTE, Level.ONLINE) or (cell.is_load and kept is Level.DRAM)
        if name in made and not again:
            fetches[name] = Fetch(name, kept)
            return
        for source in cell.sources:
            need(source)
        makes[name] = None

    for cell in nest.cells:
        if cell.is_reduction and cell.stage - 1 == number:
            need(cell.sources[0])
    for name, _ in nest.stores:
        if nest.cell[name].wide and nest.pass_of_store(name) == number:
            need(name)
    return tuple(makes), tuple(fetches.values())


def _fault(level: dict[str, Level], made: dict[str, int], fetched: set[tuple[str, int]], cuts: tuple[int, ...]) -> str:
    for name, number in sorted(fetched):
        ended = [cut for cut in cuts if made[name] <= cut < number]
        if level[name] in (Level.SRAM, Level.REG) and ended:
            return f"{name} is in {level[name].name} when the kernel ends after pass {ended[0]}, and pass {number} reads it"
    return ""
