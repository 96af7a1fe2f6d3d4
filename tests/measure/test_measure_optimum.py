"""The set of best programs, regrets and their noise floor, on samples whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gensor_gym.measure.records.optimum import find_optimum

PASSES = [p for p in (1, 2, 3) for _ in range(5)]


def drawn(rng: np.random.Generator, truth: float, noise: float, drift: np.ndarray | None = None) -> list[float]:
    """Fifteen samples around a truth; `drift` is a factor for each pass, the same for all programs."""
    factors = np.repeat(drift if drift is not None else np.ones(3), 5)
    return (truth * factors * (1.0 + noise * rng.standard_normal(15))).tolist()


def test_equal_programs_are_tied_and_others_are_not() -> None:
    rng = np.random.default_rng(0)
    missed = wrong = 0
    for _ in range(40):
        samples = [drawn(rng, 1.0, 0.01) for _ in range(3)] + [drawn(rng, truth, 0.01) for truth in (1.05, 1.5, 3.0)]
        found = find_optimum(samples, [PASSES] * 6)
        missed += int((~found.tied[:3]).sum())
        wrong += int(found.tied[3:].sum())
        assert found.tied[int(np.argmin([np.median(s) for s in samples]))]
    assert missed <= 0.25 * 120, "programs that are equal are told apart far too often"
    assert wrong == 0


def test_a_drift_that_all_programs_share_does_not_hide_a_difference() -> None:
    rng, drift = np.random.default_rng(1), np.array([1.0, 1.0, 1.2])
    separated = 0
    for _ in range(20):
        samples = [drawn(rng, truth, 0.005, drift) for truth in (1.0, 1.04)]
        separated += int(not find_optimum(samples, [PASSES] * 2).tied[1])
    assert separated >= 15


def test_regret_is_zero_within_the_set_and_relative_outside() -> None:
    best, slow = [1.0, 1.1, 0.9, 1.0, 1.05] * 3, [2.0] * 15
    found = find_optimum([slow, best, [], [1.02, 1.1, 0.95, 1.0, 1.04] * 3], [PASSES, PASSES, [], PASSES])
    assert found.tied.tolist() == [False, True, False, True]
    assert found.regret(0, 2.0) == pytest.approx(math.log(2.0)) and found.best == 1.0
    assert found.regret(1, 1.0) == found.regret(3, 1.02) == 0.0
    assert found.regret(2, float("inf")) == float("inf")


def test_the_noise_floor_follows_the_noise() -> None:
    rng = np.random.default_rng(2)
    floors = [np.mean([find_optimum([drawn(rng, 1.0, noise)], [PASSES]).floor for _ in range(20)]) for noise in (0.0, 0.01, 0.1)]
    assert floors[0] == 0.0 and 0.003 < floors[1] < 0.03 and 5 < floors[2] / floors[1] < 20


def test_the_answer_is_always_the_same_and_needs_no_passes() -> None:
    rng = np.random.default_rng(3)
    samples = [drawn(rng, 1.0 + 0.002 * i, 0.01) for i in range(8)]
    one, two = find_optimum(samples, [PASSES] * 8), find_optimum(samples, [PASSES] * 8)
    assert (one.best, one.floor, one.tied.tolist()) == (two.best, two.floor, two.tied.tolist())
    bare = find_optimum([[1.0], [2.0, 2.0]], [[], []])
    assert bare.tied.tolist() == [True, False] and bare.floor == 0.0
    mixed = find_optimum([drawn(rng, 1.0, 0.01), [1.0, 1.01], [1.3] * 5], [PASSES, [], [3] * 5])
    assert mixed.tied.tolist() == [True, True, False]


def test_without_samples_there_is_no_best() -> None:
    with pytest.raises(ValueError, match="no program has samples"):
        find_optimum([[], []], [[], []])


def test_of_one_pass_the_drift_has_to_be_known() -> None:
    """Half a percent is nothing where medians drift by as much from pass to pass, and all where samples alone count."""
    best, near, far = ([t, 1.0001 * t, 0.9999 * t] * 2 for t in (1.0, 1.005, 1.1))
    samples, passes = [best, near, far], [[1] * 6] * 3
    alone, drifting = find_optimum(samples, passes), find_optimum(samples, passes, drift=0.005)
    assert alone.tied.tolist() == [True, False, False] and alone.floor < 0.001
    assert drifting.tied.tolist() == [True, True, False] and drifting.floor == pytest.approx(1.96 * math.sqrt(2) * 0.005, rel=0.1)
    with pytest.raises(ValueError, match="drift -0.1: expected a standard deviation"):
        find_optimum(samples, passes, drift=-0.1)
