"""Coordinate descent on the analytic model, its ends and all that differs from them in one column measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agents.core.column_descents import begun, descended
from agents.core.feedback import measure_with_feedback
from agents.core.programs import Programs
from agents.core.ranking import REGISTER_TILE, STRUCTURE, Construction, best_of_each, ranked
from agents.hybrids.model_search import ModelSearch
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class ModelDescent(ModelSearch):
    """The compiled coordinate descent (`gensor_gym.cost.column_descent`) from random programs, several in a round."""

    restarts: int = 12
    """Descents from random programs in a round."""

    structures: int = 0
    """Structures (packed operands, order of loops, ..) of the best programs, in each of which a descent continues."""

    register_tiles: int = 0
    """Other register tiles of the best program, the fastest by the model, from each of which a descent continues.

    Only on a CPU: its effect on a GPU was not measured.
    """

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """One set of descents after another, each from new random programs."""
        programs, within = Programs(graph), Programs(graph, STRUCTURE)
        while True:
            begin, before = time.perf_counter(), graph.evaluations
            rows, seconds = descended(programs, begun(graph, self.restarts, rng))
            if self.structures:
                more = descended(within, best_of_each(STRUCTURE, rows, seconds)[: self.structures])
                rows, seconds = np.concatenate([rows, more[0]]), np.concatenate([seconds, more[1]])
            if self.register_tiles and graph.hardware.kind == "cpu":
                more = self._with_other_tiles(programs, rows[np.argmin(seconds)])
                rows, seconds = np.concatenate([rows, more[0]]), np.concatenate([seconds, more[1]])
            made = graph.evaluations - before
            yield Construction(*ranked(rows, seconds, graph), len(rows), made, time.perf_counter() - begin)

    def _with_other_tiles(self, programs: Programs, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `_descended`, from `row` with other register tiles."""
        rows = programs.other_register_tiles(row)
        seconds = programs.graph.latencies(rows)
        legal = np.isfinite(seconds)
        starts = best_of_each(REGISTER_TILE, rows[legal], seconds[legal])[: self.register_tiles]
        return descended(programs, starts) if len(starts) else (rows[:0], seconds[:0])


@dataclass(frozen=True)
class ModelDescentExtended(ModelDescent):
    """The same in the extended space, in many structures, with measurements correcting the model structure by structure.

    The model errs by a fifth from structure to structure (it takes caches and misaligned loads for better than they are), which a
    few trials correct if the ranking holds good programs of each.
    """

    space: str = "extended"
    restarts: int = 24
    structures: int = 12
    register_tiles: int = 8
    near: float = 1.3
    """Programs predicted to take up to this multiple of the best are measured for their register tile."""
    explored: float = 1.2
    """Structures whose best program is predicted to take up to this multiple of the best of all are measured once, first."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Descend, then measure the best predictions, which measurements correct (`agents.core.feedback`)."""
        measure_with_feedback(self.construct, session, rng, self.per_register_tile, self.near, self.explored)
