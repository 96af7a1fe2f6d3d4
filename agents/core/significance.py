"""Test from the samples of two measurements whether one kernel is significantly faster than the other."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, variance


def is_faster(samples: Sequence[float], than: Sequence[float], level: float) -> bool:
    """Return whether the mean of `samples` is significantly smaller than the mean of `than`.

    The test is Welch's two-sided t-test at `level`. With fewer than two samples on a side, or without variance, the smaller mean
    decides. A kernel without samples has failed and counts as slower than any other.
    """
    if not samples or not than:
        return bool(samples)
    gap = fmean(than) - fmean(samples)
    if gap <= 0 or min(len(samples), len(than)) < 2:
        return gap > 0
    a, b = variance(samples) / len(samples), variance(than) / len(than)
    if a + b == 0:
        return True
    from scipy.special import stdtrit

    freedom = (a + b) ** 2 / (a**2 / (len(samples) - 1) + b**2 / (len(than) - 1))
    return bool(gap / (a + b) ** 0.5 >= stdtrit(freedom, 1 - level / 2))
