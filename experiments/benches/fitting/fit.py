"""Fitting numbers of the model to measured times: the coefficients of its terms, or the constants of the CPU model.

The loss is, over operators, the variance of log(measured / model) within an operator, which is about ranking, and a
tenth of the squared mean of it, which is about scale. Programs near the fastest count most, since those are the ones a
search has to tell apart: the weight of a program is the square root of (fastest / its time). A little of the squared
logs of (value / start) is added, so that a number that never matters stays where it is. It is minimised by coordinate
search on the logs with shrinking steps: few numbers, a model that takes a microsecond, no gradient through its maxima.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.constants import CPU_CONSTANTS
from gensor_gym.cost.terms import TERMS
from gensor_gym.graph.tables.tables import COEFFICIENT, CONSTANT

STEPS = (0.7, 0.35, 0.17, 0.08, 0.04)
SCALE_WEIGHT = 0.1
PRIOR_WEIGHT = 0.003
LARGEST = 3.0
"""Logs of coefficients stay within this of zero."""


@dataclass(frozen=True)
class Parameters:
    """Numbers of the model that lie side by side among the floats of a task: names and float64 arrays [P]."""

    place: int
    names: tuple[str, ...]
    start: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def floats(self) -> slice:
        """Their indices in `Tables.floats`."""
        return slice(self.place, self.place + len(self.names))


_ONES = np.ones(len(TERMS))
COEFFICIENTS = Parameters(COEFFICIENT, TERMS, _ONES, _ONES * np.exp(-LARGEST), _ONES * np.exp(LARGEST))
CONSTANTS = Parameters(
    CONSTANT,
    tuple(constant.name for constant in CPU_CONSTANTS),
    *(np.array([getattr(constant, name) for constant in CPU_CONSTANTS]) for name in ("start", "low", "high")),
)


class OfOperator:
    """Data of one operator, that of `graph`."""

    graph: ConstructionGraph

    @property
    def operator(self) -> str:
        """The operator's text."""
        return str(self.graph.operator)

    @property
    def part(self) -> str:
        """Part of the split that the operator is of."""
        return operators.part_of(self.graph.operator)


@dataclass(frozen=True)
class Sample:
    """Measured programs of one operator: rows int32 [B, ROW], seconds float64 [B]."""

    graph: ConstructionGraph
    rows: np.ndarray
    seconds: np.ndarray
    override: tuple[Parameters, np.ndarray] | None = None
    """Parameters and their values [P] in place of those of the graph."""

    def predicted(self) -> np.ndarray:
        """Seconds by the model, float64 [B]."""
        if self.override is None:
            return self.graph.latencies(self.rows)
        parameters, values = self.override
        floats = self.graph.tables.floats
        before = floats[parameters.floats].copy()
        try:
            floats[parameters.floats] = values
            return self.graph.latencies(self.rows)
        finally:
            floats[parameters.floats] = before

    def with_values(self, parameters: Parameters, values: np.ndarray) -> Sample:
        """The same measurements under other values of the model."""
        return replace(self, override=(parameters, values))


def loss(samples: list[Sample]) -> float:
    """See the module; without the prior."""
    parts = []
    for sample in samples:
        if len(sample.seconds) > 1:
            errors = np.log(sample.seconds / sample.predicted())
            weights = np.sqrt(sample.seconds.min() / sample.seconds)
            mean = np.average(errors, weights=weights)
            parts.append(np.average((errors - mean) ** 2, weights=weights) + SCALE_WEIGHT * mean**2)
    return float(np.mean(parts))


def fit(samples: list[Sample], parameters: Parameters = COEFFICIENTS) -> np.ndarray:
    """Values float64 [P] of the parameters. ValueError without samples."""
    if not samples:
        raise ValueError("a fit needs measured programs; none ran well")
    start, low, high = (np.log(values) for values in (parameters.start, parameters.low, parameters.high))

    def cost(logs: np.ndarray) -> float:
        fitted = [sample.with_values(parameters, np.exp(logs)) for sample in samples]
        return loss(fitted) + PRIOR_WEIGHT * float(np.mean((logs - start) ** 2))

    logs = start.copy()
    best = cost(logs)
    for step in STEPS:
        improved = True
        while improved:
            improved = False
            for at in range(len(logs)):
                for sign in (1.0, -1.0):
                    trial = logs.copy()
                    trial[at] = np.clip(trial[at] + sign * step, low[at], high[at])
                    value = cost(trial)
                    if value < best - 1e-9:
                        logs, best, improved = trial, value, True
    return np.exp(logs)
