"""Beam search over the construction graph on the analytic model; then the best programs found are measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count

import numpy as np

from agents.core.ranking import Constructing, Construction, measure_rankings, ranked
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import STOP
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class Beam(Constructing):
    """The `width` fastest new successors by the model are the next beam.

    Successors may be slower than their parents, so that moves that change no program (a level opened) do not end the search; it
    ends after `patience` steps without a faster program. All programs met are ranked, and measured in that order. The first
    search begins at the unscheduled program, later ones, when all programs met are measured, at random ones.
    """

    space: str = "extended"
    width: int = 32
    patience: int = 12
    per_register_tile: int = 2
    """Programs of one register tile that are measured before others (see `agents.core.ranking.diverse`)."""

    def __post_init__(self) -> None:
        """ValueError for a beam of nothing."""
        if self.width < 1 or self.patience < 1:
            raise ValueError(f"width={self.width}, patience={self.patience}: expected 1 or more for both")

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Construct, measure down the ranking, again until the budget is spent or nothing new is met."""
        found = self.constructions(session.graph, rng)
        measure_rankings(lambda *_: next(found), session, rng, self.per_register_tile)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """The first search. Nothing in it is random."""
        return self.grow(graph, graph.initial())

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """The first search, then others, each from a random program."""
        for start in chain([graph.initial()], (graph.random_schedule(rng) for _ in count())):
            yield self.grow(graph, start)

    def grow(self, graph: ConstructionGraph, start: Schedule) -> Construction:
        """All programs that a search from `start` meets, by the model."""
        begin = time.perf_counter()
        beam = start.row[None]
        rows, seconds = [beam], [graph.latencies(beam)]
        known = {beam[0].tobytes()}
        best, idle = float(seconds[0][0]), 0
        while len(beam) and idle < self.patience:
            near = {row.tobytes(): row for row in successors(graph, beam)}
            after = np.array([row for key, row in near.items() if key not in known], np.int32).reshape(-1, beam.shape[1])
            known.update(near)
            times = graph.latencies(after)
            rows.append(after)
            seconds.append(times)
            beam = after[np.argsort(times, kind="stable")[: self.width]]
            improved = len(times) > 0 and times.min() < best
            best, idle = (float(times.min()), 0) if improved else (best, idle + 1)
        schedules, latencies = ranked(np.concatenate(rows), np.concatenate(seconds), graph)
        return Construction(schedules, latencies, len(known), len(known), time.perf_counter() - begin)


def successors(graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
    """All results of one legal action on any of the rows [B, ROW], int32 [N, ROW]."""
    masks = graph.action_masks(rows)
    masks[:, STOP] = False
    parents, actions = np.nonzero(masks)
    return graph.transitions(np.ascontiguousarray(rows[parents]), actions)[0]
