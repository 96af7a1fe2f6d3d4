"""Coordinate descent on the analytic model, its ends and all that differs from them in one column measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agents.core.feedback import measure_with_feedback
from agents.core.programs import Programs
from agents.core.ranking import Construction, ranked
from agents.hybrids.model_search import ModelSearch
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class ModelDescent(ModelSearch):
    """The compiled coordinate descent (`gensor_gym.cost.column_descent`) from random programs, several in a round."""

    restarts: int = 12
    """Descents from random programs in a round."""

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """One set of descents after another, each from new random programs."""
        programs = Programs(graph)
        while True:
            begin, before = time.perf_counter(), graph.evaluations
            starts = [graph.random_schedule(rng).row for _ in range(self.restarts)]
            ends = [programs.descend(row) for row in starts]
            around = [programs.neighbours(row) for row, _ in ends]
            rows = np.concatenate([np.stack([row for row, _ in ends]), *(found for found, _ in around)])
            seconds = np.concatenate([[best for _, best in ends], *(found for _, found in around)])
            made = graph.evaluations - before
            yield Construction(*ranked(rows, seconds, graph), len(rows), made, time.perf_counter() - begin)


@dataclass(frozen=True)
class ModelDescentExtended(ModelDescent):
    """The same in the extended space, with the model corrected by what was measured, structure by structure."""

    space: str = "extended"
    restarts: int = 24
    near: float = 1.3
    """Programs predicted to take up to so many times the best are near enough to be measured for their register tile."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Descend, then measure what is predicted to be best, which what was measured corrects (`agents.core.feedback`)."""
        measure_with_feedback(self.construct, session, rng, self.per_register_tile, self.near)
