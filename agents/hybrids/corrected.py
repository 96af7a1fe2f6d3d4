"""Another strategy's programs, ranked by the analytic model with a learned correction and measured like `markov_ext`'s."""

from __future__ import annotations

import dataclasses
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
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class Corrected(Constructing):
    """Construct programs with `proposer` and rank them by the corrected model, or without a correction by the model alone."""

    space: str = "extended"
    proposer: str = "markov_ext"
    """A strategy that constructs by the model alone."""
    checkpoint: str = ""
    """Folder of the proposer's policy, if the proposer has a policy."""
    trust: bool = False
    """The proposer's `trust`; it is passed on only together with a `checkpoint`."""
    correction: str = ""
    """Folder that `gensor learn_correction` wrote; if empty, the model is not corrected."""
    most: int = 512
    """Maximum number of programs that are corrected and kept, fastest by the model first."""
    refined: int = 0
    """Number of programs, fastest by the corrected model first, from which a descent over columns begins."""
    descents: int = 6
    """Maximum number of steps of a descent."""
    walkers: int = 0
    """Number of the traverser's walks by the corrected model, which begin at the register tiles of the fastest programs."""
    steps: int = 48
    """Number of steps of each walk."""
    per_register_tile: int = 2
    near: float = 1.3

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Construct, correct and measure, again and again, until the budget is spent or nothing new comes."""
        predict = partial(self.predict, session.graph) if self.correction else None
        measure_with_feedback(self.construct, session, rng, self.per_register_tile, self.near, predict=predict)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """The proposer's construction, with corrected latencies and ranked by them."""
        found: Construction = self._inner().construct(graph, rng)
        if not self.correction or not found.schedules:
            return found
        rows = graph.stack(list(found.schedules[: self.most]))
        seconds = self.predict(graph, rows)
        rows, seconds = self._walked(graph, rows, seconds, rng)
        rows, seconds = self._refined(graph, rows, seconds)
        order = np.argsort(seconds, kind="stable")
        schedules = tuple(Schedule(rows[i]) for i in order)
        return dataclasses.replace(found, schedules=schedules, latencies=tuple(seconds[order].tolist()))

    def _walked(
        self, graph: ConstructionGraph, rows: np.ndarray, seconds: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """(rows, seconds) with the programs of walks added, whose benefits are ratios of the corrected model's times."""
        if self.walkers == 0:
            return rows, seconds
        traverser = MarkovExtended(space=self.space, refiners=self.walkers)
        starts = traverser.register_tiles(graph, rows, seconds)
        options = traverser.options(self.steps, traverser.refine_temperature)
        more, predicted = guided_walks(graph, starts, partial(self.predict, graph), options, rng)
        known = {row.tobytes() for row in rows}
        new = [index for index, row in enumerate(more) if row.tobytes() not in known and np.isfinite(predicted[index])]
        return np.concatenate([rows, more[new]]), np.concatenate([seconds, predicted[new]])

    def _refined(self, graph: ConstructionGraph, rows: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows, seconds) with the programs on descents added. A step goes to the best program that differs in one column."""
        known = {row.tobytes(): float(value) for row, value in zip(rows, seconds, strict=True)}
        programs = Programs(graph)
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
        found = np.frombuffer(b"".join(known), dtype=rows.dtype).reshape(-1, rows.shape[1])
        return found, np.array(list(known.values()))

    def predict(self, graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
        """Seconds float64 [B] of rows by the corrected model, up to a factor that all programs of the operator share."""
        return load_correction(self.correction).seconds(graph, rows)

    def _inner(self) -> Any:
        """The strategy named `proposer`."""
        of_policy = {"checkpoint": self.checkpoint, "trust": self.trust} if self.checkpoint else {}
        return get_strategy(self.proposer, space=self.space, **of_policy)

    def training_seconds(self, graph: ConstructionGraph) -> float | None:
        """Training cost in seconds of the proposer's policy; None if it has no policy."""
        cost = getattr(self._inner(), "training_seconds", None)
        return float(cost(graph)) if callable(cost) else None
