"""Agents that choose which of a task's recorded programs (candidates) to measure next.

They choose by the analytic model, by a learned model of time, or at random. A suite's session provides the
candidates (`gensor_gym.suites.session.CandidateSession`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.core.feedback import Feedback
from agents.hybrids.correction import load_correction
from gensor_gym.construction import ConstructionGraph
from gensor_gym.suites.session import CandidateSession


@dataclass(frozen=True)
class RankedCandidates:
    """Measure the candidate programs with the shortest predicted times first."""

    space: str = "extended"
    correction: str = ""
    """Folder that `gensor learn_correction` wrote; if empty, the analytic model predicts."""
    feedback: bool = True
    """Whether measured times correct the predictions of programs of the same structure."""

    def search(self, session: CandidateSession, rng: np.random.Generator) -> None:
        """Measure one candidate at a time until the budget is spent or all are measured."""
        left = list(session.candidates)
        predicted = dict(zip(left, self.predict(session.graph, session.graph.stack(left)).tolist(), strict=True))
        feedback = Feedback()
        while left:
            chosen = min(left, key=lambda one: feedback.corrected(one, predicted[one]))
            left.remove(chosen)
            (measured,) = session.measure([chosen])
            if self.feedback and np.isfinite(predicted[chosen]):
                feedback.add(chosen, predicted[chosen], measured.quiet_seconds)

    def predict(self, graph: ConstructionGraph, rows: np.ndarray) -> np.ndarray:
        """Predict the seconds float64 [B] of encoded programs; infinite for programs that the model refuses."""
        return load_correction(self.correction).seconds(graph, rows) if self.correction else graph.latencies(rows)


@dataclass(frozen=True)
class RandomCandidates:
    """Measure the candidate programs in random order."""

    space: str = "extended"

    def search(self, session: CandidateSession, rng: np.random.Generator) -> None:
        """Measure every candidate in random order, until the budget is spent."""
        session.measure([session.candidates[at] for at in rng.permutation(len(session.candidates))])
