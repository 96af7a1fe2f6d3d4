"""Strategies compared with a reference strategy: score differences for the same task and seed, intervals, Holm's correction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.statistics import statistics

Line = dict[str, float]
"""mean, low, high: the paired difference and its interval.

p comes from a sign-flip test on tasks; p_holm is its adjusted value, and p_least the smallest p_holm possible with this number of
tasks and strategies. improves, improves_low, improves_high: probability of improvement and its interval.
"""


def against(
    scores: Mapping[str, np.ndarray], other: np.ndarray, resamples: int, crossed: bool = False
) -> dict[str, list[Line]]:
    """Compare every score [tasks, seeds, K] with `other`, of that shape; return K lines by name. Smaller scores are better.

    `crossed` says that all tasks share their seeds (see `statistics.bootstrap`).
    """
    found = {name: _differences(score, other, resamples, crossed) for name, score in scores.items()}
    units = other.shape[0] if other.shape[0] > 1 else other.shape[1]  # of the sign-flip test: tasks, or seeds of a single task
    for k in range(other.shape[2]):
        adjusted = statistics.holm([lines[k]["p"] for lines in found.values()])
        for lines, p in zip(found.values(), adjusted, strict=True):
            lines[k]["p_holm"] = p
            lines[k]["p_least"] = min(1.0, len(found) * 2.0 ** (1 - units))
    return found


def _differences(ours: np.ndarray, theirs: np.ndarray, resamples: int, crossed: bool) -> list[Line]:
    """K lines, without Holm's correction, of one score compared with another."""

    def mean(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        return (ours - theirs).mean(axis=(0, 1))

    def chance(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        return np.array([statistics.probability_of_improvement(ours[..., k], theirs[..., k]) for k in range(ours.shape[2])])

    low, high = statistics.bootstrap(mean, ours, theirs, resamples=resamples, crossed=crossed)
    least, most = statistics.bootstrap(chance, ours, theirs, resamples=min(resamples, 500), crossed=crossed)
    means, better = mean(ours, theirs), chance(ours, theirs)
    units = (ours - theirs).mean(axis=1) if len(ours) > 1 else (ours - theirs)[0]
    return [
        {
            "mean": float(means[k]), "low": float(low[k]), "high": float(high[k]),
            "p": statistics.sign_flip(units[..., k]),
            "improves": float(better[k]), "improves_low": float(least[k]), "improves_high": float(most[k]),
        }
        for k in range(len(means))
    ]  # fmt: skip
