"""Statistics of comparisons over many tasks and seeds, with their uncertainty.

A score is an array [tasks, seeds]; smaller is better. Interquartile means, performance profiles and probabilities of improvement
are those of Agarwal et al. (NeurIPS 2021); the correction for multiple comparisons is Holm's (1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from scipy.stats import rankdata

from gensor_gym.measure.stats.intervals import CONFIDENCE

EXACT = 14
"""Largest number of units for which a sign-flip test enumerates all 2^N combinations of signs."""
FLIPS = 20_000
"""Number of random combinations of signs that a sign-flip test draws for more than EXACT units."""


def best_so_far(values: Sequence[float] | np.ndarray, length: int) -> np.ndarray:
    """Return the least of the first k values for k = 1 .. length, float64 [length].

    A search that ended early keeps its last value. Raise ValueError without values, or if `length` is below 1.
    """
    if len(values) == 0 or length < 1:
        raise ValueError(f"{len(values)} values to a length of {length}: expected at least one of both")
    least = np.minimum.accumulate(np.asarray(values, dtype=np.float64)[:length])
    return np.concatenate([least, np.full(length - len(least), least[-1])])


def chances_of_best(count: int, k: int) -> np.ndarray:
    """Return, for `count` values in ascending order, the probability that each is the least of k drawn without replacement.

    The result is float64 [count]. The i-th value is the least with probability C(count - i, k - 1) / C(count, k).
    """
    # P(least > the i-th) = C(count - i, k) / C(count, k), as a running product
    left = count - np.arange(count)
    above = np.concatenate([[1.0], np.cumprod(np.maximum(0.0, (left - k) / left))])
    return above[:-1] - above[1:]


def expected_best(values: np.ndarray) -> np.ndarray:
    """Return the expected least of k of the N values drawn without replacement, for k = 1 .. N, float64 [N].

    It is infinite for every k at which all drawn values may be infinite. Raise ValueError without values, or for NaN.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    if ordered.ndim != 1 or not count or np.isnan(ordered).any():
        raise ValueError(f"values of shape {ordered.shape}: expected one row of at least one number")
    chances = (chances_of_best(count, k) for k in range(1, count + 1))
    return np.array([np.dot(ordered[of > 0], of[of > 0]) for of in chances])


def interquartile_best(tasks: Sequence[np.ndarray], k: int) -> float:
    """Return the interquartile mean of the best of k random values: draw a task, then k of its values without replacement.

    This is the exact limit of `interquartile_mean` for many such draws.
    """
    values = np.concatenate([np.sort(of) for of in tasks])
    weights = np.concatenate([chances_of_best(len(of), min(k, len(of))) for of in tasks]) / len(tasks)
    order = np.argsort(values, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(weights[order])])
    inside = np.diff(np.clip(below, 0.25, 0.75))
    return float(np.dot(values[order], inside) / 0.5)


def interquartile_mean(values: np.ndarray, axis: int | tuple[int, ...] = (0, 1)) -> np.ndarray:
    """Return the mean of the values along the axes, without the lowest and the highest quarter (rounded down).

    `scipy.stats.trim_mean` gives the same but takes twenty times as long, which a bootstrap would spend at every resample.
    """
    axes = (axis,) if isinstance(axis, int) else axis
    moved = np.moveaxis(values, axes, range(-len(axes), 0))
    flat = np.sort(moved.reshape(*moved.shape[: -len(axes)], -1), axis=-1)
    drop = flat.shape[-1] // 4
    return flat[..., drop : flat.shape[-1] - drop].mean(axis=-1)


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean, or None if there are no values."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def bootstrap(
    statistic: Callable[..., np.ndarray | float], *scores: np.ndarray, resamples: int = 2000, seed: int = 0, crossed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the (low, high) ends of the percentile bootstrap interval of `statistic(*scores)`, each in the statistic's shape.

    Each resample draws tasks with replacement, as many as there are, and within each drawn task as many seeds as there are. All
    scores [tasks, seeds, ...] use the same draws, so that pairs stay pairs. `crossed` draws the seeds once for all tasks: a seed
    that trained one policy for all tasks has a common effect on them, which must stay together. Raise ValueError if the numbers
    of tasks or seeds differ.
    """
    shapes = {score.shape[:2] for score in scores}
    if len(shapes) != 1:
        raise ValueError(f"scores of shapes {sorted(shapes)}: expected the same tasks and seeds")
    ((tasks, seeds),) = shapes
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(resamples):
        task = rng.integers(0, tasks, size=(tasks, 1))
        drawn = rng.integers(0, seeds, size=(1 if crossed else tasks, seeds))
        found.append(np.asarray(statistic(*(score[task, drawn] for score in scores))))
    low, high = np.quantile(np.stack(found), (0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2), axis=0)
    return low, high


def sign_flip(differences: np.ndarray) -> float:
    """Return the two-sided p value of the hypothesis that differences [N] of independent units are symmetric around zero.

    It is the share of combinations of signs whose mean is at least as far from zero as the observed mean. All combinations are
    enumerated up to `EXACT` units; beyond that a sample is drawn.
    """
    units = np.asarray(differences, dtype=np.float64)
    count = len(units)
    if count <= EXACT:
        signs = 1 - 2 * (np.indices((2,) * count).reshape(count, -1).T)
    else:
        signs = np.random.default_rng(0).choice((-1, 1), size=(FLIPS, count))
        signs[0] = 1  # the observed signs are one of the combinations
    observed = abs(units.sum())
    return float(np.mean(np.abs(signs @ units) >= observed * (1 - 1e-9)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for multiple comparisons by Holm's method, in the given order.

    A comparison is significant at a level if its adjusted value is at most that level.
    """
    order = np.argsort(p_values, kind="stable")
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the share of searches whose score is at most each threshold, float64 [thresholds]; all tasks count equally."""
    return (scores[..., None] <= thresholds).mean(axis=(0, 1))


def probability_of_improvement(ours: np.ndarray, others: np.ndarray) -> float:
    """Return the probability that our score is smaller than the other on a random task, over all pairs of seeds.

    Scores are [tasks, seeds]. A tie counts one half.
    """
    mine, theirs = ours[:, :, None], others[:, None, :]
    return float(((mine < theirs) + 0.5 * (mine == theirs)).mean())


# Strategies compared with a reference strategy: score differences for the same task and seed, intervals, Holm's correction.

Line = dict[str, float]
"""Comparison with the reference: the mean paired difference `mean`, with the ends `low` and `high` of its interval.

`p` comes from a sign-flip test on tasks; `p_holm` is its adjusted value, and `p_least` the smallest `p_holm` possible with this
number of tasks and strategies. `improves`, `improves_low`, `improves_high`: probability of improvement and its interval.
"""


def against(
    scores: Mapping[str, np.ndarray], other: np.ndarray, resamples: int, crossed: bool = False
) -> dict[str, list[Line]]:
    """Compare scores [tasks, seeds, K] by name with `other`, of the same shape; return a list of K comparisons for each name.

    Smaller scores are better. p values are adjusted over the names. `crossed` says that all tasks share their seeds (see
    `bootstrap`).
    """
    found = {name: _differences(score, other, resamples, crossed) for name, score in scores.items()}
    units = other.shape[0] if other.shape[0] > 1 else other.shape[1]  # of the sign-flip test: tasks, or seeds of a single task
    for k in range(other.shape[2]):
        adjusted = holm([lines[k]["p"] for lines in found.values()])
        for lines, p in zip(found.values(), adjusted, strict=True):
            lines[k]["p_holm"] = p
            lines[k]["p_least"] = min(1.0, len(found) * 2.0 ** (1 - units))
    return found


def _differences(ours: np.ndarray, theirs: np.ndarray, resamples: int, crossed: bool) -> list[Line]:
    """Compare scores `ours` with `theirs`, both [tasks, seeds, K]; return K comparisons, still without `p_holm` and `p_least`."""

    def mean(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        return (ours - theirs).mean(axis=(0, 1))

    def chance(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        return np.array([probability_of_improvement(ours[..., k], theirs[..., k]) for k in range(ours.shape[2])])

    low, high = bootstrap(mean, ours, theirs, resamples=resamples, crossed=crossed)
    least, most = bootstrap(chance, ours, theirs, resamples=min(resamples, 500), crossed=crossed)
    means, better = mean(ours, theirs), chance(ours, theirs)
    units = (ours - theirs).mean(axis=1) if len(ours) > 1 else (ours - theirs)[0]
    return [
        {
            "mean": float(means[k]), "low": float(low[k]), "high": float(high[k]),
            "p": sign_flip(units[..., k]),
            "improves": float(better[k]), "improves_low": float(least[k]), "improves_high": float(most[k]),
        }
        for k in range(len(means))
    ]  # fmt: skip


# Rankings of predictions against measurements.

FASTEST = 5
"""Divisor of the number of programs: the fastest 1/FASTEST of them are also scored on their own."""


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's rank correlation; ties get their mean rank. The result is nan if one side is constant."""
    left, right = rankdata(a), rankdata(b)
    if min(np.std(left), np.std(right)) == 0:
        return float("nan")
    return float(np.corrcoef(left, right)[0, 1])


def fastest(seconds: np.ndarray) -> np.ndarray:
    """Return the indices of the fastest programs: one in `FASTEST` of all, but at least three."""
    return np.argsort(seconds, kind="stable")[: max(3, len(seconds) // FASTEST)]


def top_k_regret(predicted: np.ndarray, measured: np.ndarray, k: int) -> float:
    """Return the regret of the best of the k programs predicted to be fastest: log(its measured time / best measured time)."""
    first = np.argsort(predicted, kind="stable")[:k]
    return float(np.log(measured[first].min() / measured.min()))
