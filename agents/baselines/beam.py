"""Beam search over the construction graph by the analytic model. The best visited programs are measured afterwards."""

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
    """Beam search by the model: each step keeps the `width` fastest programs that one action makes of the current ones.

    Successors may be slower than their parents, because an action that enters the next level does not change the program. A beam
    search ends after `patience` steps without a faster program. All visited programs are measured in order of model time. The
    first beam search begins at the unscheduled program. When all its programs are measured, further beam searches begin at random
    programs.
    """

    space: str = "extended"
    width: int = 32
    patience: int = 12
    per_register_tile: int = 2
    """Number of programs of each register tile to measure first; all other programs of the ranking follow."""

    def __post_init__(self) -> None:
        if self.width < 1 or self.patience < 1:
            raise ValueError(f"width={self.width}, patience={self.patience}: expected 1 or more for both")

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Run beam searches and measure their programs, until the budget is spent or no new program is found."""
        found = self.constructions(session.graph, rng)
        measure_rankings(lambda *_: next(found), session, rng, self.per_register_tile)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Run the beam search from the unscheduled program, which is deterministic, and return its ranking."""
        return self.grow(graph, graph.initial())

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Yield the ranking of the beam search from the unscheduled program, then of beam searches from random programs."""
        for start in chain([graph.initial()], (graph.random_schedule(rng) for _ in count())):
            yield self.grow(graph, start)

    def grow(self, graph: ConstructionGraph, start: Schedule) -> Construction:
        """Run one beam search from the program `start`; return all programs that it visits, ranked by the model."""
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
    """Return all programs int32 [N, ROW] that one legal action makes of an encoded program in `rows` [B, ROW].

    The action `stop` is left out.
    """
    masks = graph.action_masks(rows)
    masks[:, STOP] = False
    parents, actions = np.nonzero(masks)
    return graph.transitions(np.ascontiguousarray(rows[parents]), actions)[0]
