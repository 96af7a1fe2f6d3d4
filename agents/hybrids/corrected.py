"""A strategy that ranks another strategy's programs by a corrected analytic model and measures them like `markov_ext`.

The correction is learned from measured times (`agents.hybrids.correction`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from agents.core.feedback import measure_with_feedback
from agents.core.programs import Programs
from agents.core.ranking import Constructing, Construction
from agents.gensor.guided_walks import guided_walks
from agents.gensor.markov import MarkovExtended
from agents.hybrids.correction import load_correction
from agents.strategy import get_strategy
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class Corrected(Constructing):
    """Rank the programs of another strategy, `proposer`, by a learned correction of the model, then measure them.

    Without a correction the analytic model ranks.
    """

    space: str = "extended"
    proposer: str = "markov_ext"
    """Name of the strategy that constructs the programs by the model alone."""
    checkpoint: str = ""
    """Folder of the proposer's policy, if the proposer has a policy."""
    trust: bool = False
    """The proposer's setting `trust`. It is passed on only together with a `checkpoint`."""
    correction: str = ""
    """Folder that `gensor learn_correction` wrote; if empty, the model is not corrected."""
    most: int = 512
    """Maximum number of the proposer's programs, the fastest by the analytic model, that the corrected model evaluates."""
    refined: int = 0
    """Number of programs, the fastest by the corrected model, from which descents over columns begin."""
    descents: int = 6
    """Maximum number of steps of a descent."""
    walkers: int = 0
    """Number of the traverser's walks by the corrected model, from the register tiles of the fastest programs."""
    steps: int = 48
    """Number of steps of each walk."""
    per_register_tile: int = 2
    near: float = 1.3

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Construct, rank and measure programs again and again, until the budget is spent or no new program is found."""
        predict = partial(self.predict, session.graph) if self.folder(session.graph) else None
        measure_with_feedback(self.construct, session, rng, self.per_register_tile, self.near, predict=predict)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Construct programs with the proposer, add walks and descents by the corrected model, and rank all by its times."""
        begin, before = time.perf_counter(), graph.evaluations
        found: Construction = self._inner().construct(graph, rng)
        if not self.folder(graph) or not found.schedules:
            return found
        rows = graph.stack(list(found.schedules[: self.most]))
        known = {row.tobytes(): float(value) for row, value in zip(rows, self.predict(graph, rows), strict=True)}
        self._walk(graph, known, rng)
        self._descend(graph, known)
        rows, seconds = _arrays(known)
        order = np.argsort(seconds, kind="stable")
        schedules, latencies = tuple(Schedule(rows[i]) for i in order), tuple(seconds[order].tolist())
        cost = graph.evaluations - before, time.perf_counter() - begin
        return Construction(schedules, latencies, found.visited, *cost)

    def _walk(self, graph: ConstructionGraph, known: dict[bytes, float], rng: np.random.Generator) -> None:
        """Run walks by the corrected model and add the visited programs to `known` (encoded program -> predicted seconds)."""
        if self.walkers == 0:
            return
        traverser = MarkovExtended(space=self.space, refiners=self.walkers)
        starts = traverser.register_tiles(graph, *_arrays(known))
        options = traverser.options(self.steps, traverser.refine_temperature)
        more, predicted = guided_walks(graph, starts, partial(self.predict, graph), options, rng)
        for row, value in zip(more, predicted.tolist(), strict=True):
            if np.isfinite(value):
                known.setdefault(row.tobytes(), value)

    def _descend(self, graph: ConstructionGraph, known: dict[bytes, float]) -> None:
        """Run descents by the corrected model and add their programs to `known` (encoded program -> predicted seconds).

        A step takes the best program that differs in the tiles of one axis, or in one knob.
        """
        programs, (rows, seconds) = Programs(graph), _arrays(known)
        for start in np.argsort(seconds, kind="stable")[: self.refined]:
            row, value = programs.opened(rows[start]), float(seconds[start])
            for _ in range(self.descents):
                near, _ = programs.neighbours(row)
                predicted = self.predict(graph, near)
                best = int(np.argmin(predicted))
                if not predicted[best] < value:
                    break
                row, value = near[best], float(predicted[best])
                known.setdefault(row.tobytes(), value)

    def predict(self, graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
        """Predict the seconds float64 [B] of encoded programs by the corrected model.

        The seconds are known up to a factor that all programs of the operator share.
        """
        return load_correction(self.folder(graph)).seconds(graph, rows)

    def folder(self, graph: ConstructionGraph) -> str:
        """Return the folder of the correction for a task; empty for no correction."""
        return self.correction

    def _inner(self) -> Any:
        of_policy = {"checkpoint": self.checkpoint, "trust": self.trust} if self.checkpoint else {}
        return get_strategy(self.proposer, space=self.space, **of_policy)

    def training_seconds(self, graph: ConstructionGraph) -> float | None:
        """Return the training cost of the proposer's policy in seconds; None if it has no policy."""
        cost = getattr(self._inner(), "training_seconds", None)
        return float(cost(graph)) if callable(cost) else None


def _arrays(known: dict[bytes, float]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(known), dtype=np.int32).reshape(-1, ROW), np.array(list(known.values()))
