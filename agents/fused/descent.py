"""Coordinate descent by the model over schedules of fused operators, repeated from different programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from agents.core.ranking import Constructing, Construction, measure_rankings, ranked
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.placement import levels_of
from gensor_gym.gir.schedule import HEADER
from gensor_gym.measure.session import Session
from gensor_gym.rows.steps import StepGraph


@dataclass(frozen=True)
class GirDescent(Constructing):
    """Coordinate descent over schedules of fused operators: set one field or placement after another to its best value.

    A descent ends when a pass over all fields changes nothing; each pass has a random order. The first descent begins at the
    unscheduled program, later descents at random programs.
    """

    space: str = "gir"
    per_register_tile: int = 2
    """Number of programs of each placement to measure first; all other programs of the ranking follow."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Run descents and measure their programs, until the budget is spent or a descent finds no new program."""
        found = self.constructions(session.graph, rng)
        measure_rankings(lambda *_: next(found), session, rng, self.per_register_tile)

    def construct(self, graph: Any, rng: np.random.Generator) -> Construction:
        """Run one descent from the unscheduled program; return all evaluated programs, ranked by the model."""
        return self.descend(graph, graph.initial().row, rng)

    def constructions(self, graph: Any, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Yield the ranking of one descent after another, without end."""
        for number in count():
            yield self.descend(graph, graph.random_schedule(rng).row if number else graph.initial().row, rng)

    def descend(self, graph: StepGraph[Any], row: np.ndarray, rng: np.random.Generator) -> Construction:
        """Run one descent from the encoded program `row`; return all evaluated programs, ranked by the model."""
        begin = time.perf_counter()
        asked, seconds = [row[None]], [graph.latencies(row[None])]
        best, changed = float(seconds[0][0]), True
        while changed:
            changed = False
            for place in rng.permutation(_places(graph)):
                others = _along(graph, row, int(place))
                if not len(others):
                    continue
                asked.append(others)
                seconds.append(graph.latencies(others))
                if seconds[-1].min() < best:
                    row, best, changed = others[int(seconds[-1].argmin())], float(seconds[-1].min()), True
        rows, found = np.concatenate(asked), np.concatenate(seconds)
        schedules, latencies = ranked(rows, found, graph)  # type: ignore[arg-type]
        return Construction(schedules, latencies, len(rows), len(rows), time.perf_counter() - begin)


def _places(graph: StepGraph[Any]) -> int:
    """Return the number of positions of an encoded program: its fields and, for a row nest, the placements of its values."""
    return HEADER + len(graph.nest.crossing) if isinstance(graph, GirGraph) else graph.kind.length


def _along(graph: StepGraph[Any], row: np.ndarray, place: int) -> np.ndarray:
    """Return the legal programs int32 [N, ROW] that differ from the encoded program `row` only at position `place`."""
    if not isinstance(graph, GirGraph) or place < HEADER:
        values = np.arange(len(graph.kind.fields[place].values))
    else:
        values = np.array(levels_of(graph.nest, graph.nest.crossing[place - HEADER]), np.int64)
    others = np.repeat(row[None], len(values) - 1, axis=0)
    others[:, place] = values[values != row[place]]
    return others[graph.fits(others)]


