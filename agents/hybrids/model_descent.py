"""Coordinate descent on the analytic model. Ends of descents are measured, and their neighbours (one axis or knob differs)."""

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
    """Run compiled coordinate descents (`gensor_gym.cost.column_descent`) from several random programs at a time."""

    restarts: int = 12
    """Number of descents from random programs in a round."""

    structures: int = 0
    """Number of structures (packed operands, loop order, ..) in which a descent continues from the structure's best program."""

    register_tiles: int = 0
    """Number of other register tiles, the fastest by the model, with which a descent continues from the best program.

    Such tiles are used only on CPUs, because their effect on a GPU was not measured.
    """

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield one ranking per group of descents: their ends and all neighbours. Every group begins at new random programs."""
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
        """Descend from variants of the encoded program `row` with other register tiles.

        Return (ends and their neighbours, their model seconds), like `descended`.
        """
        rows = programs.other_register_tiles(row)
        seconds = programs.graph.latencies(rows)
        legal = np.isfinite(seconds)
        starts = best_of_each(REGISTER_TILE, rows[legal], seconds[legal])[: self.register_tiles]
        return descended(programs, starts) if len(starts) else (rows[:0], seconds[:0])


@dataclass(frozen=True)
class ModelDescentExtended(ModelDescent):
    """`ModelDescent` in many structures of the extended space; measurements correct the predicted times of each structure.

    A structure is the knobs that change the code as a whole. The model's error differs by a fifth from structure to structure,
    because it is too optimistic about caches and misaligned loads. A few trials correct this if the ranking contains good
    programs of each structure.
    """

    space: str = "extended"
    restarts: int = 24
    structures: int = 12
    register_tiles: int = 8
    near: float = 1.3
    """Register tiles with few measurements come first among programs predicted within this multiple of the best time."""
    explored: float = 1.2
    """The best program of each new structure is measured early if it is predicted within this multiple of the best time."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Descend, then measure programs by their predicted times, which measurements correct (`agents.core.feedback`)."""
        measure_with_feedback(self.construct, session, rng, self.per_register_tile, self.near, self.explored)
