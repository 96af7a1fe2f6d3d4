"""Statistics against cases that are known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from experiments.common import statistics


def test_best_so_far_keeps_the_last() -> None:
    assert statistics.best_so_far([3.0, 5.0, 1.0], 5).tolist() == [3.0, 3.0, 1.0, 1.0, 1.0]
    assert statistics.best_so_far([3.0, 5.0, 1.0], 2).tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="0 values"):
        statistics.best_so_far([], 3)


def test_expected_best_is_the_mean_over_all_draws() -> None:
    values = np.array([0.5, 0.0, 2.0, 0.7, 0.7])
    found = statistics.expected_best(values)
    for k in range(1, 6):
        draws = [min(drawn) for drawn in itertools.combinations(values, k)]
        assert found[k - 1] == pytest.approx(math.fsum(draws) / len(draws))


def test_interquartile_best_is_that_of_all_draws() -> None:
    tasks = [np.array([3.0, 0.0, 1.0, 2.0]), np.array([0.5, 9.0])]
    drawn = [float(min(d)) for d in itertools.combinations(tasks[0], 2)]  # 6 draws of the first task, one of the second
    values = np.sort(np.repeat(drawn + [0.5] * 6, 4))  # each task as often; so often that quarters are whole
    assert statistics.interquartile_best(tasks, 2) == pytest.approx(values[12:36].mean())
    assert statistics.interquartile_best(tasks, 4) == pytest.approx(0.25)
    assert statistics.chances_of_best(5, 1) == pytest.approx([0.2] * 5)


def test_interquartile_mean_drops_a_quarter_at_each_end() -> None:
    values = np.array([[100.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, -100.0]])
    assert statistics.interquartile_mean(values) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert statistics.interquartile_mean(values, axis=1).tolist() == [2.5, 4.5]
    assert statistics.interquartile_mean(np.array([[1.0, 2.0, 6.0]])) == 3.0  # too few to drop any
    curves = np.stack([values, values + 1], axis=-1)
    assert statistics.interquartile_mean(curves).tolist() == pytest.approx([3.5, 4.5])


@pytest.mark.thorough
def test_bootstrap_covers_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for repeat in range(200):
        scores = rng.normal(size=(30, 1)) + rng.normal(scale=0.3, size=(30, 4))
        low, high = statistics.bootstrap(np.mean, scores, resamples=300, seed=repeat)
        inside += low <= 0.0 <= high
    assert 180 <= inside <= 199


def test_bootstrap_keeps_pairs_together() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(6, 5)) * 100
    low, high = statistics.bootstrap(lambda x, y: np.mean(x - y), a + 1.0, a)
    assert low == pytest.approx(1.0) and high == pytest.approx(1.0)
    with pytest.raises(ValueError, match="same tasks"):
        statistics.bootstrap(np.mean, a, a[1:])


def test_sign_flips() -> None:
    assert statistics.sign_flip(np.array([1.0, 1.0, 1.0, 1.0])) == 2 / 16
    assert statistics.sign_flip(np.array([1.0, -1.0])) == 1.0
    assert statistics.sign_flip(np.array([3.0, 1.0, -1.0])) == 6 / 8  # all sums but 3 - 1 - 1 and its opposite reach 3
    assert statistics.sign_flip(np.zeros(5)) == 1.0
    assert statistics.sign_flip(np.ones(40)) == pytest.approx(1 / statistics.FLIPS)


def test_holm() -> None:
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def test_performance_profile() -> None:
    scores = np.array([[0.0, 0.1], [0.2, 0.4]])
    assert statistics.performance_profile(scores, np.array([0.0, 0.1, 0.3, 1.0])).tolist() == [0.25, 0.5, 0.75, 1.0]


def test_probability_of_improvement() -> None:
    ours, others = np.array([[0.0, 1.0], [5.0, 5.0]]), np.array([[1.0, 2.0], [5.0, 4.0]])
    # first task: 3 of 4 pairs won and one tied; second: two ties and two lost
    assert statistics.probability_of_improvement(ours, others) == pytest.approx(((3 + 0.5) / 4 + (2 * 0.5) / 4) / 2)
    assert statistics.probability_of_improvement(ours, ours) == 0.5


def test_means_are_those_of_scipy() -> None:
    scores = np.random.default_rng(0).lognormal(size=(7, 10))
    assert np.isclose(statistics.interquartile_mean(scores), scipy.stats.trim_mean(scores, 0.25, axis=None), rtol=1e-12)
    chances = [scipy.stats.mannwhitneyu(other, own).statistic / 100 for own, other in zip(scores, scores[::-1] ** 2, strict=True)]
    assert np.isclose(statistics.probability_of_improvement(scores, scores[::-1] ** 2), np.mean(chances), rtol=1e-12)
    drawn = scipy.stats.bootstrap((scores[0],), lambda x, axis=-1: scipy.stats.trim_mean(x, 0.25, axis=axis), n_resamples=4000,
                                  method="percentile", rng=0).confidence_interval  # fmt: skip
    ours = statistics.bootstrap(statistics.interquartile_mean, scores[:1], resamples=4000)
    assert np.allclose(ours, drawn, rtol=0.03), "of one task both draw seeds alone"


def test_metrics_are_those_of_rliable() -> None:
    """Where it is installed; it takes runs before tasks, and greater scores for better.

    Its module of intervals is left out: rliable 1.2.0 wants arch 7, which does not import beside pandas 3.
    """
    metrics = pytest.importorskip("rliable.metrics")
    rng = np.random.default_rng(0)
    own, other = rng.lognormal(size=(7, 10)), rng.lognormal(0.2, size=(7, 10))
    assert np.isclose(statistics.interquartile_mean(own), metrics.aggregate_iqm(own.T), rtol=1e-12)
    chance = metrics.probability_of_improvement(-own.T, -other.T)
    assert np.isclose(statistics.probability_of_improvement(own, other), chance, rtol=1e-12)
