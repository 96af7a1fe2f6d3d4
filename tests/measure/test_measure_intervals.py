"""Intervals of ratios are as wide as their confidence says: what a mutation showed that no other test looks at."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from gensor_gym.measure.stats.intervals import quiet_ratio_interval, ratio_interval

Interval = Callable[..., tuple[float, float, float]]


def width(interval: Interval, confidence: float) -> float:
    """Mean logarithm of the ends' ratio over many pairs of runs."""
    rng = np.random.default_rng(0)
    found = []
    for seed in range(60):
        a, b = rng.lognormal(0.0, 0.05, 100), rng.lognormal(0.0, 0.05, 100)
        _, low, high = interval(a, b, confidence, resamples=500, seed=seed)
        found.append(np.log(high / low))
    return float(np.mean(found))


@pytest.mark.parametrize("interval", [ratio_interval, quiet_ratio_interval])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_width_grows_with_confidence_as_that_of_a_normal_does(interval: Interval, confidence: float) -> None:
    """Against the interval of 50 percent; one that leaves out as much on each side would be too narrow by a sixth."""
    normal = NormalDist()
    expected = normal.inv_cdf(0.5 + confidence / 2) / normal.inv_cdf(0.75)
    assert width(interval, confidence) / width(interval, 0.5) == pytest.approx(expected, rel=0.08)
