"""Fitting the coefficients of the model to measured times: one multiplier for each term.

The loss is, over operators, the variance of log(measured / model) within an operator, which is about ranking, and a
tenth of the squared mean of it, which is about scale; plus a little of the squared logs of the coefficients, so that a
term that never matters stays as it is. It is minimised by coordinate search on the logs with shrinking steps: eight
numbers, a model that takes a microsecond, and no gradient through its maxima.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.tables import COEFFICIENT

STEPS = (0.7, 0.35, 0.17, 0.08, 0.04)
SCALE_WEIGHT = 0.1
PRIOR_WEIGHT = 0.003
LARGEST = 3.0
"""Logs of coefficients stay within this of zero."""


@dataclass(frozen=True)
class Sample:
    """Measured programs of one operator: rows int32 [B, ROW], seconds float64 [B]."""

    graph: ConstructionGraph
    rows: np.ndarray
    seconds: np.ndarray
    coefficients: np.ndarray | None = None
    """Multipliers of the terms; None leaves those of the graph."""

    def predicted(self) -> np.ndarray:
        """Seconds by the model, float64 [B]."""
        place = slice(COEFFICIENT, COEFFICIENT + NUM_TERMS)
        floats = self.graph.tables.floats
        before = floats[place].copy()
        try:
            if self.coefficients is not None:
                floats[place] = self.coefficients
            return self.graph.latencies(self.rows)
        finally:
            floats[place] = before

    def with_coefficients(self, coefficients: np.ndarray) -> Sample:
        """The same measurements under other coefficients."""
        return replace(self, coefficients=coefficients)


def loss(samples: list[Sample]) -> float:
    """See the module; without the prior."""
    parts = []
    for sample in samples:
        if len(sample.seconds) > 1:
            errors = np.log(sample.seconds / sample.predicted())
            parts.append(np.var(errors) + SCALE_WEIGHT * np.mean(errors) ** 2)
    return float(np.mean(parts))


def fit(samples: list[Sample]) -> np.ndarray:
    """Coefficients float64 [NUM_TERMS]. ValueError without samples."""
    if not samples:
        raise ValueError("a fit needs measured programs; none ran well")

    def cost(logs: np.ndarray) -> float:
        fitted = [sample.with_coefficients(np.exp(logs)) for sample in samples]
        return loss(fitted) + PRIOR_WEIGHT * float(np.mean(logs**2))

    logs = np.zeros(NUM_TERMS)
    best = cost(logs)
    for step in STEPS:
        improved = True
        while improved:
            improved = False
            for term in range(NUM_TERMS):
                for sign in (1.0, -1.0):
                    trial = logs.copy()
                    trial[term] = np.clip(trial[term] + sign * step, -LARGEST, LARGEST)
                    value = cost(trial)
                    if value < best - 1e-9:
                        logs, best, improved = trial, value, True
    return np.exp(logs)
