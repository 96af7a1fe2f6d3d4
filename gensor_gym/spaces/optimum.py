"""The optimum of a recorded space as a set: the best configuration and those statistically tied with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from gensor_gym.measure.stats.intervals import CONFIDENCE, block_resamples

FEWEST = 6
"""Number of samples below which no interval of 95 percent exists without assumptions (see `intervals.median_interval`)."""
RESAMPLES = 2000


def tied_with_best(
    samples: Sequence[np.ndarray], seconds: np.ndarray, timing: str, confidence: float = CONFIDENCE, seed: int = 0
) -> np.ndarray:
    """Return which configurations are statistically tied with the best, bool [N].

    A configuration is tied when the lower end of the interval of log(its time / the best time) is at most 0. The interval comes
    from a circular block bootstrap of each configuration separately, with blocks as long as samples are correlated; the statistic
    is the mean for timing `reported`, else the median. If the configuration or the best has fewer than six samples, only equal
    times tie. The best configuration was chosen by the same samples, which makes the set a little too small.
    """
    best = int(np.argmin(seconds))
    tied = seconds == seconds[best]
    if len(samples[best]) < FEWEST:
        return tied
    statistic = np.mean if timing == "reported" else np.median
    around_best = _deviations(samples[best], statistic, seed)
    lowest = around_best.max()
    for i in np.flatnonzero(np.isfinite(seconds) & ~tied).tolist():
        own, gap = samples[i], np.log(seconds[i] / seconds[best])
        if len(own) < FEWEST or gap > math.sqrt(2.0) * np.log(statistic(own) / own.min()) + lowest:
            continue  # cannot tie: no resample is below the smallest sample, and `_deviations` corrects by at most sqrt(2)
        low = gap + np.quantile(_deviations(own, statistic, seed + 1) - around_best, 0.5 - confidence / 2)
        tied[i] = low <= 0.0
    return tied


def _deviations(samples: np.ndarray, statistic: object, seed: int) -> np.ndarray:
    """Return log(statistic of a resample / statistic of the samples) for all resamples, float64 [RESAMPLES].

    Resamples of n samples in blocks of b vary too little, by a factor of about sqrt((n - b) / n), which is corrected here.
    """
    block = block_length(samples)
    index = _resamples(len(samples), block, seed)
    ratio = statistic(samples[index], axis=1) / statistic(samples)  # type: ignore[operator]
    return np.log(ratio) * math.sqrt(len(samples) / (len(samples) - block))


@lru_cache(maxsize=64)
def _resamples(count: int, block: int, seed: int) -> np.ndarray:
    """Return the indices of the samples in each resample. Configurations with equal counts share them: drawing is slow."""
    return block_resamples(count, block, RESAMPLES, np.random.default_rng(seed))


def block_length(samples: np.ndarray) -> int:
    """Return the length of bootstrap blocks for correlated samples.

    It is the cube root of the number of samples, multiplied by 2 (2 r / (1 - r^2))^(2/3) if neighbours are correlated: r is the
    correlation of neighbouring samples, and the power is the rule for a first-order autoregressive series (Carlstein 1986). The
    factor 2 corrects for few samples, which underestimate r. The length is at most half of the number of samples.
    """
    count = len(samples)
    root = count ** (1 / 3)
    centred = samples - samples.mean()
    spread = float((centred**2).sum())
    r = float((centred[1:] * centred[:-1]).sum()) / spread if spread > 0.0 else 0.0
    r = min(max(r, 0.0), 0.99)
    return int(np.clip(round(2 * root * (2 * r / (1 - r * r)) ** (2 / 3)), max(1, round(root)), max(1, count // 2)))
