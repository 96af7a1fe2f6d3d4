"""Constructions by the model alone, and how a search measures their rankings."""

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
"""Places of the register tile in a row."""
STRUCTURE = [knob.place for knob in KNOBS if knob.structural]
"""Indices of the knobs that change the generated code as a whole. The model errs alike on programs of one structure."""


@dataclass(frozen=True)
class Construction:
    """Result of a construction by the model: distinct programs, fastest first, and its cost."""

    schedules: tuple[Schedule, ...]
    latencies: tuple[float, ...]
    """Model seconds of every schedule."""
    visited: int
    """States the walks went through."""
    evaluations: int
    """Evaluations of the model; the graph has counted them."""
    seconds: float
    """Wall time of the construction."""


class Constructing(ABC):
    """A strategy that constructs by the model, again and again, as `agents.strategy.Constructs` requires."""

    @abstractmethod
    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """One construction; no measurement."""

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """`construct` without end; `once` makes no difference."""
        while True:
            yield self.construct(graph, rng)


class ConstructingByRules(Constructing):
    """A strategy that constructs by rules: the model ranks nothing, and evaluates the results once for the record."""

    @abstractmethod
    def rows(self, graph: ConstructionGraph) -> tuple[list[np.ndarray], int]:
        """(different programs, the best by the rules first; states visited). No model is called."""

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Programs in the order of the rules, with the model's latencies. Nothing is random."""
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
    """Construct and measure down the ranking, again and again, until the budget is spent or nothing new comes.

    `kinds`: the best of each structure first.
    """

    def measure(found: Construction) -> None:
        first = best_of_structures(found.schedules) if kinds else []
        for schedule in [*first, *diverse(found.schedules, per_register_tile)]:
            session.measure([schedule])

    until_nothing_new(construct, session, rng, measure)


IDLE = 16
"""Constructions in a row without a trial after which a search ends."""


def measure_first_of_each(constructions: Iterator[Construction], session: Session) -> None:
    """Measure the best program of one construction after another, until they end, or IDLE in a row make no trial.

    BudgetSpent passes through.
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
    """Construct and have the construction measured until that makes no trial; BudgetSpent passes through."""
    while True:
        found = construct(session.graph, rng)
        before = session.trials
        measure(found)
        if session.trials == before:
            return


def tile_of(schedule: Schedule | GirSchedule) -> bytes:
    """The register tile; of a fused operator's schedule where its values are placed."""
    return schedule.row[HEADER:].tobytes() if isinstance(schedule, GirSchedule) else schedule.row[REGISTER_TILE].tobytes()


def best_of_each(places: list[int], rows: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Rows that differ at some of these places, the fastest of each kind, fastest first."""
    ordered = rows[np.argsort(seconds, kind="stable")]
    _, first = np.unique(ordered[:, places], axis=0, return_index=True)
    return ordered[np.sort(first)]


def best_of_structures(schedules: tuple[Schedule, ...]) -> list[Schedule]:
    """The first of each structure in a ranking."""
    first: dict[bytes, Schedule] = {}
    for schedule in schedules:
        first.setdefault(schedule.row[STRUCTURE].tobytes(), schedule)
    return list(first.values())


def ranked(
    rows: np.ndarray, seconds: np.ndarray, graph: ConstructionGraph
) -> tuple[tuple[Schedule, ...], tuple[float, ...]]:
    """Distinct programs by model latency, every level marked as opened (which changes no program)."""
    rows = opened(rows, graph.tables.ints) if isinstance(graph, ConstructionGraph) else rows
    _, first = np.unique(rows, axis=0, return_index=True)
    order = first[np.argsort(seconds[first], kind="stable")]
    return tuple(graph.schedule(rows[i]) for i in order), tuple(seconds[order].tolist())


def diverse(schedules: tuple[Schedule, ...], per_register_tile: int) -> list[Schedule]:
    """The ranking with at most `per_register_tile` programs of each register tile in front, the others at the end."""
    taken: dict[bytes, int] = {}
    first: list[Schedule] = []
    later: list[Schedule] = []
    for schedule in schedules:
        tile = tile_of(schedule)
        taken[tile] = taken.get(tile, 0) + 1
        (first if taken[tile] <= per_register_tile else later).append(schedule)
    return first + later
