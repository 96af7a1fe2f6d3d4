"""Constructions by the model alone, and functions that measure programs in the order of these rankings."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.gir.schedule import HEADER, GirSchedule
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import MAX_AXES, TILE
from gensor_gym.measure.session import Session

REGISTER_TILE = list(range(TILE, TILE + MAX_AXES))
"""Positions of the register tile in a row."""
STRUCTURE = [knob.place for knob in KNOBS if knob.structural]
"""Positions in a row of the knobs that change the generated code as a whole.

Programs with equal values at these positions have the same structure. The model's error is similar for such programs.
"""


@dataclass(frozen=True)
class Construction:
    """Distinct programs that were constructed by the model, fastest first, and the cost of the construction."""

    schedules: tuple[Schedule, ...]
    latencies: tuple[float, ...]
    """Model seconds of every schedule."""
    visited: int
    """Number of states that the construction visited."""
    evaluations: int
    """Number of model evaluations, which the graph has counted too."""
    seconds: float
    """Wall-clock seconds of the construction."""


class Constructing(ABC):
    """Base of strategies that construct by the model again and again, as `agents.strategy.Constructs` requires."""

    @abstractmethod
    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Construct once by the model; nothing is measured."""

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Yield the results of `construct` without end. `once` makes no difference."""
        while True:
            yield self.construct(graph, rng)


class ConstructingByRules(Constructing):
    """Base of strategies that construct by rules. The model does not rank; it evaluates each result once, only for the record."""

    @abstractmethod
    def rows(self, graph: ConstructionGraph) -> tuple[list[np.ndarray], int]:
        """(distinct programs, best by the rules first; number of states visited). No model is called."""

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Construct the programs by the rules, in their order, with the model's latencies. The result is deterministic."""
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
    kinds: bool = False,
) -> None:
    """Repeat construction and measurement in order of rank until the budget is spent or no new program is found.

    With `kinds` the best program of each structure is measured first.
    """

    def measure(found: Construction) -> None:
        first = best_of_structures(found.schedules) if kinds else []
        for schedule in [*first, *diverse(found.schedules, per_register_tile)]:
            session.measure([schedule])

    until_nothing_new(construct, session, rng, measure)


IDLE = 16
"""Number of consecutive constructions without a new trial after which a search ends."""


def measure_first_of_each(constructions: Iterator[Construction], session: Session) -> None:
    """Measure the best program of each construction.

    It ends after the last construction, or after IDLE constructions in a row without a new trial. BudgetSpent passes through.
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
    """Call `construct` and `measure` alternately until `measure` adds no trial. BudgetSpent passes through."""
    while True:
        found = construct(session.graph, rng)
        before = session.trials
        measure(found)
        if session.trials == before:
            return


def tile_of(schedule: Schedule | GirSchedule) -> bytes:
    """Key of a schedule's register tile. For a fused operator, the key of its placements."""
    return schedule.row[HEADER:].tobytes() if isinstance(schedule, GirSchedule) else schedule.row[REGISTER_TILE].tobytes()


def best_of_each(places: list[int], rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """The fastest row for each combination of values at the positions `places`, fastest first."""
    ordered = rows[np.argsort(seconds, kind="stable")]
    _, first = np.unique(ordered[:, places], axis=0, return_index=True)
    return ordered[np.sort(first)]


def best_of_structures(schedules: tuple[Schedule, ...]) -> list[Schedule]:
    """The first program of each structure in a ranking."""
    first: dict[bytes, Schedule] = {}
    for schedule in schedules:
        first.setdefault(schedule.row[STRUCTURE].tobytes(), schedule)
    return list(first.values())


def ranked(
    rows: np.ndarray, seconds: np.ndarray, graph: ConstructionGraph
) -> tuple[tuple[Schedule, ...], tuple[float, ...]]:
    """(distinct programs of `rows`, their latencies), fastest first. Each program has a tile for every memory level."""
    rows = opened(rows, graph.tables.ints) if isinstance(graph, ConstructionGraph) else rows
    _, first = np.unique(rows, axis=0, return_index=True)
    order = first[np.argsort(seconds[first], kind="stable")]
    return tuple(graph.schedule(rows[i]) for i in order), tuple(seconds[order].tolist())


def diverse(schedules: tuple[Schedule, ...], per_register_tile: int) -> list[Schedule]:
    """Reorder a ranking: the first `per_register_tile` programs of each register tile come before all other programs."""
    taken: dict[bytes, int] = {}
    first: list[Schedule] = []
    later: list[Schedule] = []
    for schedule in schedules:
        tile = tile_of(schedule)
        taken[tile] = taken.get(tile, 0) + 1
        (first if taken[tile] <= per_register_tile else later).append(schedule)
    return first + later
