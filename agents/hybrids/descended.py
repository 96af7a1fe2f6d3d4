"""Compiled coordinate descents by the model, which start at the programs of a policy that writes column by column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from agents.columns.policy import ColumnWriter, Memory
from agents.core.programs import Programs
from agents.core.ranking import REGISTER_TILE, Construction, best_of_each, measure_first_of_each
from agents.hybrids.descents import descent
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class ColumnsDescents(ColumnWriter):
    """Write programs column by column with a policy (`agent=columns`) and descend by the model from the best, again and again."""

    episodes: int = 32
    descents: int = 4
    """Number of programs per round, with different register tiles, from which descents start."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Measure the best of the programs written each time, and the end of each descent.

        The search ends when the budget is spent or no new program is found.
        """
        measure_first_of_each(self.constructions(session.graph, rng), session)

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Yield, again and again, a ranking of written programs, then one ranking per descent; end if no program is new."""
        programs, memory = Programs(graph), Memory(self.temperature)
        while True:
            found = self.written(graph, self.episodes, memory, rng)
            if not found.schedules:
                return
            yield found
            rows = np.array([schedule.row for schedule in found.schedules], dtype=np.int32).reshape(-1, ROW)
            for row in islice(best_of_each(REGISTER_TILE, rows, np.array(found.latencies)), self.descents):
                yield descent(programs, row)
