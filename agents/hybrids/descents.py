"""Coordinate descents by the model, one after another: the baseline of policies with few evaluations, compared in seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agents.core.programs import Programs
from agents.core.ranking import Construction, measure_first_of_each
from agents.hybrids.model_search import ModelSearch
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Session


def descent(programs: Programs, row: np.ndarray) -> Construction:
    """Run the compiled coordinate descent from the encoded program `row` int32 [ROW]; return a ranking of its end alone."""
    begin, before = time.perf_counter(), programs.graph.evaluations
    row, seconds = programs.descend(row)
    made = programs.graph.evaluations - before
    return Construction((Schedule(row),), (seconds,), made, made, time.perf_counter() - begin)


@dataclass(frozen=True)
class Descents(ModelSearch):
    """Run compiled coordinate descents by the model from one random program after another.

    A step changes all tiles of an axis, or a knob. Proofs of optima begin with such descents (`gensor_gym.exact.incumbent`).
    `model_descent` also measures the neighbours of their ends.
    """

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Measure the end of each descent, until the budget is spent or descents reach only known programs."""
        measure_first_of_each(self.rounds(session.graph, rng), session)

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield one ranking per descent, which consists of the descent's end."""
        programs = Programs(graph)
        while True:
            yield descent(programs, graph.random_schedule(rng).row)
