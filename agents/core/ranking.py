"""Rankings of programs by the model alone, and functions that measure programs in the order of a ranking."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.gir.schedule import HEADER, GirSchedule
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import MAX_AXES, TILE
from gensor_gym.measure.session import Session
from gensor_gym.rows.schedule import RowSchedule

REGISTER_TILE = list(range(TILE, TILE + MAX_AXES))
"""Positions of the register tile's sizes in an encoded program."""
STRUCTURE = [knob.place for knob in KNOBS if knob.structural]
"""Positions in an encoded program of the knobs that change the generated code as a whole.

Programs with equal values at these positions have the same structure. The model's error is similar for such programs.
"""


@dataclass(frozen=True)
class Construction:
    """A ranking: distinct programs that a strategy constructed by the model alone, fastest first, and what that cost."""

    schedules: tuple[Schedule, ...]
    latencies: tuple[float, ...]
    """Model seconds of every schedule."""
    visited: int
    """Number of states of the graph that the construction visited."""
    evaluations: int
    """Number of model evaluations, which the graph has counted too."""
    seconds: float
    """Wall-clock seconds of the construction."""


class Constructing(ABC):
    """Base of strategies that construct rankings by the model alone, as often as the caller asks.

    It provides what `agents.strategy.Constructs` requires.
    """

    @abstractmethod
    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Construct one ranking of programs by the model; nothing is measured."""

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Yield rankings (the results of `construct`) without end. `once` makes no difference."""
        while True:
            yield self.construct(graph, rng)


class ConstructingByRules(Constructing):
    """Base of strategies that construct programs by rules; the model does not rank them.

    The model evaluates each result once, only for the record.
    """

    @abstractmethod
    def rows(self, graph: ConstructionGraph) -> tuple[list[np.ndarray], int]:
        """Construct programs by the rules, without calling the model.

        Return (distinct encoded programs, best by the rules first; number of states visited).
        """

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Construct programs by the rules, in their order, with the model's latencies. The result is deterministic."""
        begin = time.perf_counter()
        found, visited = self.rows(graph)
        latencies = graph.latencies(np.stack(found))
        schedules = tuple(Schedule(row) for row in found)
        return Construction(schedules, tuple(latencies.tolist()), visited, len(found), time.perf_counter() - begin)


def measure_rankings(
    construct: Callable[[ConstructionGraph, np.random.Generator], Construction],
    session: Session,
    rng: np.random.Generator,
    per_register_tile: int,
    first: Callable[[Sequence[Schedule]], list[Schedule]] | None = None,
) -> None:
    """Construct rankings again and again, and measure each from the fastest predicted program on.

    The search ends when the budget is spent or a ranking has no new program. The first `per_register_tile` programs of each
    register tile are measured before all others. With `first`, the programs that it returns of a ranking come before these.
    """

    def measure(found: Construction) -> None:
        before = first(found.schedules) if first else []
        for schedule in [*before, *diverse(found.schedules, per_register_tile)]:
            session.measure([schedule])

    until_nothing_new(construct, session, rng, measure)


IDLE = 16
"""Number of consecutive rankings without a new trial after which a search ends."""


def measure_first_of_each(constructions: Iterator[Construction], session: Session) -> None:
    """Measure the best program of each ranking that `constructions` yields.

    The search ends after the last ranking, or after 16 (`IDLE`) rankings in a row without a new trial. BudgetSpent passes
    through.
    """
    idle = 0
    for found in constructions:
        before = session.trials
        session.measure(found.schedules[:1])
        idle = 0 if session.trials > before else idle + 1
        if idle == IDLE:
            return


def until_nothing_new(
    construct: Callable[[ConstructionGraph, np.random.Generator], Construction],
    session: Session,
    rng: np.random.Generator,
    measure: Callable[[Construction], None],
) -> None:
    """Call `construct` and then `measure` with its ranking, again and again, until `measure` adds no trial.

    BudgetSpent passes through.
    """
    while True:
        found = construct(session.graph, rng)
        before = session.trials
        measure(found)
        if session.trials == before:
            return


def tile_of(schedule: RowSchedule) -> bytes:
    """Return a hashable key of a schedule's register tile or, for a fused operator, of its placements.

    Schedules of fields alone, as of attention, have the whole row as their key.
    """
    if isinstance(schedule, GirSchedule):
        return schedule.row[HEADER:].tobytes()
    return schedule.row[REGISTER_TILE].tobytes() if isinstance(schedule, Schedule) else schedule.key


def best_of_each(places: list[int], rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the fastest program for each combination of values at the positions `places` of its row, fastest first."""
    ordered = rows[np.argsort(seconds, kind="stable")]
    _, first = np.unique(ordered[:, places], axis=0, return_index=True)
    return ordered[np.sort(first)]


def best_of_structures(schedules: Sequence[Schedule]) -> list[Schedule]:
    """Return the first program of each structure in a ranking; a structure is the knobs that change the code as a whole."""
    first: dict[bytes, Schedule] = {}
    for schedule in schedules:
        first.setdefault(schedule.row[STRUCTURE].tobytes(), schedule)
    return list(first.values())


def ranked(
    rows: np.ndarray, seconds: np.ndarray, graph: ConstructionGraph
) -> tuple[tuple[Schedule, ...], tuple[float, ...]]:
    """Rank encoded programs by their latencies; return (distinct schedules, their latencies), fastest first.

    Each schedule has a tile for every memory level.
    """
    rows = opened(rows, graph.tables.ints) if isinstance(graph, ConstructionGraph) else rows
    _, first = np.unique(rows, axis=0, return_index=True)
    order = first[np.argsort(seconds[first], kind="stable")]
    return tuple(graph.schedule(rows[i]) for i in order), tuple(seconds[order].tolist())


def diverse(schedules: tuple[Schedule, ...], per_register_tile: int) -> list[Schedule]:
    """Reorder a ranking so that no register tile dominates its beginning.

    The first `per_register_tile` programs of each register tile come before all other programs.
    """
    taken: dict[bytes, int] = {}
    first: list[Schedule] = []
    later: list[Schedule] = []
    for schedule in schedules:
        tile = tile_of(schedule)
        taken[tile] = taken.get(tile, 0) + 1
        (first if taken[tile] <= per_register_tile else later).append(schedule)
    return first + later
