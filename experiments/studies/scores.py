"""Scores of studies over tasks and seeds: best latencies along curves, and statistics with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.statistics import paired, statistics
from experiments.statistics.statistics import interquartile_mean as iqm

EVALUATIONS, SECONDS = 0, 2
"""Columns of a curve by which a search is cut; column 1 has the latencies."""


def mean(values: np.ndarray) -> np.ndarray:
    """Mean over tasks and seeds."""
    found: np.ndarray = values.mean(axis=(0, 1))
    return found


def interval(
    statistic: Callable[..., np.ndarray], values: np.ndarray, resamples: int, *others: np.ndarray, crossed: bool = True
) -> list[dict[str, float]]:
    """A statistic of values [tasks, seeds, K], with its bootstrap interval: K dictionaries of mean, low and high.

    `others` are further arguments of the statistic. `crossed` says that a seed means the same policy on all tasks (see
    `statistics.bootstrap`).
    """
    low, high = statistics.bootstrap(statistic, values, *others, resamples=resamples, crossed=crossed)
    rows = zip(statistic(values, *others).tolist(), low.tolist(), high.tolist(), strict=True)
    return [dict(zip(("mean", "low", "high"), row, strict=True)) for row in rows]


def iqm_difference(ours: np.ndarray, other: np.ndarray, resamples: int) -> dict[str, float]:
    """IQM of our scores minus IQM of the other scores, both [tasks, seeds, 1], with its paired interval."""
    return interval(lambda ours, other: iqm(ours) - iqm(other), ours, resamples, other)[0]


def over(scores: Mapping[str, np.ndarray], other: str, resamples: int) -> dict[str, list[paired.Line]]:
    """Paired differences of every score [tasks, seeds, K] minus that of `other`; all tasks share their seeds."""
    return paired.against({name: of for name, of in scores.items() if name != other}, scores[other], resamples, crossed=True)


@dataclass(frozen=True)
class Curves:
    """Rows [tasks, seeds] by search, and the latencies [tasks] in seconds of the best and of the unscheduled programs."""

    lines: dict[str, np.ndarray]
    best: np.ndarray
    start: np.ndarray

    def regrets(self, name: str, at: np.ndarray | Sequence[float], column: int) -> np.ndarray:
        """log(T / T*) [tasks, seeds, K] of the best programs when a column of the curves has reached the values `at`."""
        found: np.ndarray = np.log(best_at(self.lines[name], self.start, at, column) / self.best[:, None, None])
        return found


def best_at(lines: np.ndarray, start: Sequence[float] | np.ndarray, at: np.ndarray | Sequence[float], column: int) -> np.ndarray:
    """Best latency so far when a column of the curve has reached `at`, float64 [tasks, seeds, K].

    `lines` are rows of searches, object [tasks, seeds]; `start` [tasks] are the latencies of the unscheduled programs; `at` is
    [K] or [tasks, seeds, K].
    """
    places = np.broadcast_to(np.asarray(at, dtype=float), (*lines.shape, np.shape(at)[-1]))
    found = np.empty(places.shape)
    for t, s in np.ndindex(lines.shape):
        curve: Any = lines[t, s]["curve"]
        ended = np.searchsorted(np.array(curve[column], dtype=float), places[t, s], side="right")
        found[t, s] = np.minimum.accumulate([start[t], *curve[1]])[ended]
    return found
