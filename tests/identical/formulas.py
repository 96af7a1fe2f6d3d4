"""Statistics: every function of intervals, verdicts and comparisons on fixed samples."""

from __future__ import annotations

import numpy as np

from agents.core.significance import is_faster
from experiments.common import statistics
from gensor_gym.measure.stats.intervals import half_width, median_interval, quiet_ratio_interval, ratio_interval
from gensor_gym.measure.stats.verdict import verdict, verdict_apart
from tests.identical.digests import of, six


def formulas() -> dict[str, str]:
    """One item a function."""
    rng = np.random.default_rng(11)
    a, b = rng.lognormal(0.0, 0.02, 60), rng.lognormal(0.03, 0.02, 60)
    scores, others = rng.random((6, 5)), rng.random((6, 5))
    p_values = [0.04, 0.01, 0.03, 0.2, 0.005]
    values: dict[str, object] = {
        "median_interval": [median_interval(a[:n]) for n in (1, 5, 6, 20, 60)],
        "half_width": half_width(a.tolist()),
        "ratio_interval": [ratio_interval(a, b, confidence) for confidence in (0.9, 0.95)],
        "quiet_ratio_interval": [quiet_ratio_interval(a, b, confidence) for confidence in (0.9, 0.95)],
        "best_so_far": statistics.best_so_far(a, 70),
        "chances_of_best": [statistics.chances_of_best(20, k) for k in (1, 3, 20)],
        "expected_best": statistics.expected_best(a),
        "interquartile_best": [statistics.interquartile_best([a, b], k) for k in (1, 4)],
        "interquartile_mean": [statistics.interquartile_mean(scores), *statistics.interquartile_mean(scores, axis=1)],
        "bootstrap": statistics.bootstrap(statistics.interquartile_mean, scores, resamples=200),
        "bootstrap, crossed": statistics.bootstrap(np.mean, scores, resamples=200, crossed=True),
        "sign_flip": [statistics.sign_flip(a[:n] - b[:n]) for n in (6, 14, 20)],
        "holm": statistics.holm(p_values),
        "performance_profile": statistics.performance_profile(scores, np.linspace(0, 1, 11)),
        "probability_of_improvement": statistics.probability_of_improvement(scores, others),
        "is_faster": [float(is_faster(a[:n].tolist(), b[:n].tolist(), level)) for n in (1, 3, 20) for level in (0.05, 0.001)],
    }
    digests = {name: of([six(number) for number in _flat(value)]) for name, value in values.items()}
    return digests | {
        "verdict": of([verdict(a, factor * b).name for factor in (0.9, 1.0, 1.05, 1.2)]),
        "verdict_apart": of([verdict_apart(a, factor * b).name for factor in (0.9, 1.0, 1.05, 1.2)]),
    }


def _flat(value: object) -> list[float]:
    """All numbers of nested lists and arrays, in order."""
    if isinstance(value, list | tuple):
        return [number for part in value for number in _flat(part)]
    return np.ravel(np.asarray(value, dtype=np.float64)).tolist()
