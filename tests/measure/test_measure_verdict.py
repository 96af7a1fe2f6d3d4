"""Verdicts: what an interval of a ratio allows to be said, and how often it is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from gensor_gym.measure.devices.anchor import Anchor
from gensor_gym.measure.stats.intervals import quiet_ratio_interval
from gensor_gym.measure.stats.timing import ClockFault, TimingRules, take_samples
from gensor_gym.measure.stats.verdict import Verdict, verdict, verdict_apart, verdict_of


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.99, 1.01, Verdict.SAME),
        (0.98, 0.99, Verdict.SAME),  # surely faster, and too little to matter
        (0.97, 0.99, Verdict.FASTER),
        (1.01, 1.04, Verdict.SLOWER),
        (0.9, 1.01, Verdict.AMBIGUOUS),
        (1 / 1.03, 1.03, Verdict.AMBIGUOUS),
        (1 / 1.025, 1.025, Verdict.SAME),
        (1.5, 1.5, Verdict.SLOWER),
    ],
)
def test_interval_decides(low: float, high: float, expected: Verdict) -> None:
    """And the other way round, the opposite."""
    opposite = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    assert verdict_of(low, high) is expected
    assert verdict_of(1 / high, 1 / low) is opposite.get(expected, expected)


def test_bad_arguments() -> None:
    for low, high in ((0.0, 1.0), (1.1, 1.0), (float("nan"), 1.0)):
        with pytest.raises(ValueError, match="no interval of a ratio"):
            verdict_of(low, high)
    with pytest.raises(ValueError, match="tolerance=0"):
        verdict_of(1.0, 1.0, tolerance=0)
    with pytest.raises(ValueError, match="two equally long lists"):
        verdict([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match=r"got shapes \(1,\) and \(2,\)"):
        verdict_apart([1.0], [1.0, 2.0])


def rounds(rng: np.random.Generator, count: int, seconds: float, drift: np.ndarray) -> np.ndarray:
    """Timings of rounds: noise of 2 percent on a drift that all kernels of a round share."""
    return seconds * drift * np.exp(0.02 * np.abs(rng.standard_normal(count)))


def test_paired_rounds_under_a_common_drift() -> None:
    """A drift by half of everything changes no verdict; five percent are told, one percent is the same."""
    rng = np.random.default_rng(0)
    found = {1.0: [], 1.05: [], 1.5: []}
    for _ in range(20):
        drift = 1 + 0.5 * np.repeat(rng.random(10), 10)
        base = rounds(rng, 100, 1e-3, drift)
        for factor, verdicts in found.items():
            verdicts.append(verdict(rounds(rng, 100, factor * 1e-3, drift), base))
    assert found == {1.0: [Verdict.SAME] * 20, 1.05: [Verdict.SLOWER] * 20, 1.5: [Verdict.SLOWER] * 20}
    wild = np.exp(rng.standard_normal(31))
    assert verdict(wild, rng.permutation(wild)) is Verdict.AMBIGUOUS


@pytest.mark.thorough
def test_separate_runs_whose_noise_only_adds() -> None:
    """Bursts of another load over half of one run and none of the other: medians differ by a fifth, verdicts hold."""
    rng = np.random.default_rng(1)
    found = {1.0: [], 1.05: []}
    for _ in range(20):
        quiet = rounds(rng, 240, 1e-3, np.ones(240))
        bursts = 1 + 0.2 * np.repeat(rng.random(24) < 0.6, 10)
        for factor, verdicts in found.items():
            other = rounds(rng, 200, factor * 1e-3, bursts[:200])
            verdicts.append(verdict_apart(other, quiet))
    assert found[1.0].count(Verdict.SAME) >= 18
    assert found[1.05] == [Verdict.SLOWER] * 20


def test_quiet_interval_covers() -> None:
    """The interval of two runs of one kernel holds 1 about as often as it says."""
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        _, low, high = quiet_ratio_interval(*np.exp(rng.standard_normal((2, 200)) ** 2), resamples=400)
        hits += low <= 1.0 <= high
    assert hits >= 180


def test_anchor_is_timed_when_due() -> None:
    """At the first trial and after every third; conditions name the last time."""
    calls = []

    def timer(count: int) -> float:
        calls.append(count)
        return 1e-4 * count

    rules, anchor = TimingRules(anchor_every=3, warmup=0.0), Anchor(timer)
    assert anchor.conditions() == {}
    timed = []
    for _ in range(7):
        before = len(calls)
        anchor.refresh(rules)
        timed.append(len(calls) > before)
    assert timed == [True, False, False, True, False, False, True]
    assert anchor.conditions()["anchor_seconds"] == pytest.approx(1e-4)
    assert anchor.conditions()["anchor_at"] > 1.7e9
    with pytest.raises(ValueError, match="anchor_every=0"):
        TimingRules(anchor_every=0)


@pytest.mark.parametrize("seconds", [-1e-3, float("nan"), float("inf"), 0.0])
def test_clocks_that_cannot_be_believed(seconds: float) -> None:
    with pytest.raises(ClockFault, match="the clock says"):
        take_samples(lambda calls: seconds, TimingRules(warmup=0.0))
