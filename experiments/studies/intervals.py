"""Statistics of studies over tasks and seeds, with their intervals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from experiments.statistics import statistics
from experiments.statistics.statistics import interquartile_mean as iqm


def mean(values: np.ndarray) -> np.ndarray:
    """Mean over tasks and seeds."""
    found: np.ndarray = values.mean(axis=(0, 1))
    return found


def interval(
    statistic: Callable[[np.ndarray], np.ndarray], values: np.ndarray, resamples: int, crossed: bool = True
) -> list[dict[str, float]]:
    """A statistic of values [tasks, seeds, K] with its interval over tasks and seeds.

    `crossed`: a seed is the same thing on all tasks (see `statistics.bootstrap`).
    """
    low, high = statistics.bootstrap(statistic, values, resamples=resamples, crossed=crossed)
    rows = zip(statistic(values).tolist(), low.tolist(), high.tolist(), strict=True)
    return [dict(zip(("mean", "low", "high"), row, strict=True)) for row in rows]


def iqm_difference(ours: np.ndarray, other: np.ndarray, resamples: int) -> dict[str, float]:
    """IQM of our scores less that of others [tasks, seeds, 1], with its paired interval: the same resamples of both."""

    def difference(ours: np.ndarray, other: np.ndarray) -> np.ndarray:
        return iqm(ours) - iqm(other)

    low, high = statistics.bootstrap(difference, ours, other, resamples=resamples, crossed=True)
    return {"mean": float(difference(ours, other)[0]), "low": float(low[0]), "high": float(high[0])}
