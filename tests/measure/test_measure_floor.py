"""Plausible times: the roofline's floor, and the recorded optimum."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import cpu_backend
from gensor_gym.measure.records.optimum import find_optimum
from gensor_gym.measure.stats import floor
from gensor_gym.measure.stats.floor import warm_floor
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.operators.types import Operator

HALVES = ("float16", "bfloat16")
PRODUCTS = ("float32", *HALVES, "float8_e4m3fn", "tf32", "tf32x3", "int8")


def spread() -> list[Operator]:
    """Products that tensor cores may take and some that they may not, sums, maxima and maps; small and large."""
    ops = [operators.gemm(n, n, n, dtype=d) for n in (16, 1024, 8192) for d in PRODUCTS]
    ops += [operators.gemm(16, 4096, 4096, dtype=d).with_epilogue("bias", "gelu") for d in PRODUCTS[:-1]]
    ops += [operators.batched_gemm(192, 128, 128, 64, dtype=d) for d in PRODUCTS]
    ops += [operators.gemv(4096, 4096, dtype=d) for d in ("float32", *HALVES, "int8")]
    for d in PRODUCTS:
        ops.append(operators.conv2d(16, 256, 14, 14, 256, 3, 3, padding=1, dtype=d))
        ops.append(operators.conv2d(1, 3, 30, 30, 20, 3, 3, dtype=d))
    for d in ("float32", *HALVES):
        ops += [operators.depthwise_conv2d(16, 144, 56, 56, 3, 3, dtype=d), operators.avg_pool2d(2, 33, 28, 28, 3, 3, dtype=d)]
        ops += [operators.reduce_sum(4096, 4096, dtype=d), operators.elementwise("gelu", 4096, 4096, dtype=d)]
    return ops


def fastest(op: Operator, hw: Hardware) -> float:
    """Operations per second of the fastest unit of a machine for a type, straight from the machine's figures.

    A type without figures of its own (tf32 on CUDA cores) is float32 there.
    """
    cores = dict(hw.peak)
    return max(cores.get(op.dtype, cores["float32"]), dict(hw.tensor_peak).get(op.dtype, 0.0))


@pytest.mark.parametrize("machine", hardware.names())
def test_the_floor_lies_below_every_roofline(machine: str) -> None:
    """The model's for every operator; for large products also one of the fastest unit, written down here."""
    hw = hardware.get(machine)
    for op in spread():
        floor = warm_floor(op, hw)
        assert 0 < floor <= roofline_floor(op, hw), op
        if op.name in ("gemm", "batched_gemm") and min(op.extents) >= 64:
            slowest = op.compulsory_bytes / min(level.bandwidth for level in hw.memory)
            assert floor <= max(op.flops / fastest(op, hw), slowest), op


def test_times_of_tensor_cores_on_an_h100_are_believable() -> None:
    """Medians of one H100 80GB HBM3 for the best kernels found, in microseconds: none is below the floor."""
    hw = hardware.get("h100")
    for op, microseconds in (
        (operators.gemm(4096, 4096, 4096, dtype="bfloat16"), 174.3),
        (operators.gemm(2048, 2048, 2048, dtype="float16"), 25.1),
        (operators.gemm(4096, 4096, 4096, dtype="tf32"), 339.0),
        (operators.gemm(4096, 4096, 4096, dtype="int8"), 265.0),
        (operators.batched_gemm(192, 128, 128, 64, dtype="bfloat16"), 5.3),
        (operators.conv2d(16, 64, 56, 56, 64, 3, 3, padding=1, dtype="float16"), 16.5),
    ):
        assert warm_floor(op, hw) < microseconds * 1e-6, op


def test_figures_that_were_measured_again_excuse_bytes_and_no_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    hw = hardware.get("zen5_1c")
    host = replace(hw, name="host")
    monkeypatch.setattr(floor, "doubted", lambda: host)
    backend = cpu_backend(TimingRules())
    product, copy = operators.gemm(1024, 1024, 1024), operators.elementwise("relu", 1 << 14, 1 << 14)
    assert 2 * warm_floor(product, hw, 0.0) > warm_floor(product, hw) and warm_floor(copy, hw, 0.0) < 0.1 * warm_floor(copy, hw)
    try:
        for op, share, status in (
            (product, 0.95, Status.OK), (product, 0.85, Status.IMPLAUSIBLE),
            (copy, 0.55, Status.OK), (copy, 0.45, Status.IMPLAUSIBLE),
        ):  # fmt: skip
            found = Measurement(Status.IMPLAUSIBLE, (share * warm_floor(op, host),) * 3, error="below the floor")
            assert backend._judged(found, op, host).status is status, (op, share)
            assert backend._judged(found, op, hw) is found, "figures of other machines stand"
    finally:
        backend.close()


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
    floors = [
        np.mean([find_optimum([drawn(rng, 1.0, noise)], [PASSES]).floor for _ in range(20)]) for noise in (0.0, 0.01, 0.1)
    ]
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
