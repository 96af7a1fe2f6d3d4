"""Intervals for timings, without assuming a distribution: of a median by order statistics, of a ratio by block bootstrap."""

from __future__ import annotations

import functools
import math
import statistics

import numpy as np

CONFIDENCE = 0.95
"""Default confidence of intervals, here and in reports."""
LEVEL = f"{100 * CONFIDENCE:g} %"
"""`CONFIDENCE` as text, as reports print it."""


def median_interval(samples: np.ndarray | list[float] | tuple[float, ...], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return an interval (low, high) that contains the median with probability `confidence`, from order statistics (binomial).

    Fewer than six samples cannot reach 95 percent; then the whole range is returned. ValueError for no samples.
    """
    values = sorted(map(float, samples))
    if not values:
        raise ValueError("median_interval needs at least one sample")
    rank = _outer_rank(len(values), confidence)
    return values[rank], values[len(values) - 1 - rank]


@functools.cache
def _outer_rank(count: int, confidence: float) -> int:
    """Return the largest k for which the k-th samples from both ends enclose the median with probability >= confidence.

    Of `count` sorted samples x, counted from 0, the interval is [x_(k), x_(count-1-k)]. 0 if no k suffices.
    """
    tail, rank = 0.0, 0
    for k in range((count + 1) // 2):
        tail += _binomial(count, k)
        if 1.0 - 2.0 * tail < confidence:
            break
        rank = k
    return rank


def _binomial(count: int, k: int) -> float:
    """Return P(Binomial(count, 1/2) = k), by log-gamma, because intermediate results of large counts would underflow."""
    log = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) - count * math.log(2.0)
    return math.exp(log)


def half_width(samples: list[float]) -> float:
    """Return half of the width of the median's confidence interval, divided by the median.

    Timing stops at a small enough value.
    """
    low, high = median_interval(samples)
    return 0.5 * (high - low) / statistics.median(samples)


def ratio_interval(
    a: np.ndarray | list[float],
    b: np.ndarray | list[float],
    confidence: float = CONFIDENCE,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return the ratio a/b of paired timings as (median, low, high), by a circular block bootstrap of the paired log ratios.

    Pair i of `a` and `b` comes from one round of an interleaved comparison, which cancels drift. Blocks of about the cube root of
    the count are drawn, because neighbouring rounds are correlated.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.shape != right.shape or left.ndim != 1 or left.size == 0:
        raise ValueError(f"ratio_interval takes two equally long lists of timings, got shapes {left.shape} and {right.shape}")
    logs = np.log(left / right)
    index = block_resamples(logs.size, _block(logs.size), resamples, np.random.default_rng(seed))
    medians = np.median(logs[index], axis=1)
    low, high = np.quantile(medians, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return float(np.exp(np.median(logs))), float(np.exp(low)), float(np.exp(high))


QUIET = 0.05
"""Quantile of a run's samples that represents an otherwise idle machine, because other load only adds time."""


def quiet_ratio_interval(
    a: np.ndarray | list[float],
    b: np.ndarray | list[float],
    confidence: float = CONFIDENCE,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return the ratio a/b of timings from two separate runs as (ratio, low, high), by a circular block bootstrap of each run.

    Samples of separate runs are not paired, so drift does not cancel. Times on an idle machine are repeatable, so the ratio is
    that of the `QUIET` quantiles. ValueError for fewer than two samples of either run.
    """
    left, right = (np.log(np.asarray(samples, dtype=np.float64)) for samples in (a, b))
    if left.ndim != 1 or right.ndim != 1 or min(left.size, right.size) < 2:
        raise ValueError(f"quiet_ratio_interval takes two lists of timings, got shapes {left.shape} and {right.shape}")
    rng = np.random.default_rng(seed)
    above, below = (np.quantile(x[block_resamples(x.size, _block(x.size), resamples, rng)], QUIET, axis=1) for x in (left, right))
    low, high = np.quantile(above - below, [0.5 - confidence / 2, 0.5 + confidence / 2])
    ratio = np.quantile(left, QUIET) - np.quantile(right, QUIET)
    return float(np.exp(ratio)), float(np.exp(low)), float(np.exp(high))


def block_resamples(count: int, block: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a circular block bootstrap: indices int64 [resamples, count] of `count` samples in the order of time.

    Blocks of `block` neighbouring samples begin anywhere and wrap around the end.
    """
    starts = rng.integers(0, count, size=(resamples, -(-count // block)))
    index = (starts[:, :, None] + np.arange(block)) % count
    return index.reshape(resamples, -1)[:, :count]


def _block(count: int) -> int:
    """Return the length of bootstrap blocks: about the cube root of the count, because neighbouring samples are correlated."""
    return max(1, round(count ** (1 / 3)))
