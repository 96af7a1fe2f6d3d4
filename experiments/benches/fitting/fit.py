"""Fits of the model to measured times: the coefficients of its terms, or the constants of the CPU model.

The loss averages two parts over operators: the variance of log(measured / model) within an operator, which is about ranking, and
a tenth of the squared mean of that log, which is about scale. Programs near the fastest count most, since a search has to rank
them: a program's weight is the square root of (fastest time / its time). A small multiple of the squared logs of (value / start)
is added, so that a parameter without effect keeps its start value. The loss is minimised by coordinate search on the logs with
shrinking steps, because there are few parameters, the model takes a microsecond, and its maxima are not differentiable.
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
"""Largest absolute log of a coefficient."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of the model, adjacent in `Tables.floats` from index `place`: their names, and float64 arrays [P]."""

    place: int
    names: tuple[str, ...]
    start: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def floats(self) -> slice:
        """Slice of the parameters in `Tables.floats`."""
        return slice(self.place, self.place + len(self.names))


_ONES = np.ones(len(TERMS))
COEFFICIENTS = Parameters(COEFFICIENT, TERMS, _ONES, _ONES * np.exp(-LARGEST), _ONES * np.exp(LARGEST))
CONSTANTS = Parameters(
    CONSTANT,
    tuple(constant.name for constant in CPU_CONSTANTS),
    *(np.array([getattr(constant, name) for constant in CPU_CONSTANTS]) for name in ("start", "low", "high")),
)


class OfOperator:
    """Base class of data about one operator, the operator of `graph`."""

    graph: ConstructionGraph

    @property
    def operator(self) -> str:
        """The operator's text."""
        return str(self.graph.operator)

    @property
    def part(self) -> str:
        """Part of the split that contains the operator."""
        return operators.part_of(self.graph.operator)


@dataclass(frozen=True)
class Sample(OfOperator):
    """Measured programs of one operator: rows int32 [B, ROW], seconds float64 [B]."""

    graph: ConstructionGraph
    rows: np.ndarray
    seconds: np.ndarray
    override: tuple[Parameters, np.ndarray] | None = None
    """(parameters, values [P]) that replace the graph's own values in predictions."""

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
        """The same measurements, with other values of the model's parameters in predictions."""
        return replace(self, override=(parameters, values))


def loss(samples: list[Sample]) -> float:
    """Loss described in the module's docstring, without the term that keeps parameters near their start."""
    parts = []
    for sample in samples:
        if len(sample.seconds) > 1:
            errors = np.log(sample.seconds / sample.predicted())
            weights = np.sqrt(sample.seconds.min() / sample.seconds)
            mean = np.average(errors, weights=weights)
            parts.append(np.average((errors - mean) ** 2, weights=weights) + SCALE_WEIGHT * mean**2)
    return float(np.mean(parts))


def fit(samples: list[Sample], parameters: Parameters = COEFFICIENTS) -> np.ndarray:
    """Fitted values float64 [P] of the parameters. ValueError without samples."""
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
