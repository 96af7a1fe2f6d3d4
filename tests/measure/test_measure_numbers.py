"""Medians, intervals, ratios and verdicts."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from gensor_gym import hardware, operators
from gensor_gym.measure.answers.expectation import ExpectationCache, decode, make_draws
from gensor_gym.measure.devices.anchor import Anchor
from gensor_gym.measure.devices.buffers import ALIGN, GuardedBuffer
from gensor_gym.measure.stats.floor import warm_floor
from gensor_gym.measure.stats.intervals import median_interval, quiet_ratio_interval, ratio_interval
from gensor_gym.measure.stats.timing import ClockFault, TimingRules, calls_per_sample, take_samples
from gensor_gym.measure.stats.verdict import Verdict, verdict, verdict_apart, verdict_of
from gensor_gym.operators.inputs import ARRAY_OFFSET, to_bfloat16
from gensor_gym.operators.types import ARRAY_DTYPE


def test_median_interval_of_few_is_the_range() -> None:
    assert median_interval([3.0]) == (3.0, 3.0)
    assert median_interval([1.0, 5.0, 2.0, 9.0, 3.0]) == (1.0, 9.0)
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])


@pytest.mark.parametrize(("count", "low"), [(6, 1), (9, 2), (20, 6), (100, 40)])
def test_median_interval_agrees_with_tables(count: int, low: int) -> None:
    """Ranks of the 95 percent interval as printed in tables of the sign test, counted from 1."""
    values = np.arange(1.0, count + 1)
    assert median_interval(values) == (low, count + 1 - low)


def test_median_interval_covers() -> None:
    rng = np.random.default_rng(0)
    hits = sum(
        low <= 1.0 <= high for low, high in (median_interval(rng.exponential(1 / np.log(2), 25)) for _ in range(2000))
    )
    assert 0.945 < hits / 2000 < 0.985
    low, high = median_interval(rng.normal(size=5000))
    assert -0.06 < low < 0 < high < 0.06


def test_ratio_interval_cancels_drift() -> None:
    rng = np.random.default_rng(1)
    drift = np.linspace(1.0, 2.0, 60)
    ratio, low, high = ratio_interval(1.1 * drift * rng.lognormal(0, 0.01, 60), drift * rng.lognormal(0, 0.01, 60))
    assert low < 1.1 < high
    assert low < ratio < high
    assert high - low < 0.03
    with pytest.raises(ValueError, match="equally long"):
        ratio_interval([1.0], [1.0, 2.0])


class FakeClock:
    """A timer with a known latency and noise; counts calls."""

    def __init__(self, seconds: float, noise: float = 0.0) -> None:
        self.seconds, self.noise, self.calls = seconds, noise, 0
        self.rng = np.random.default_rng(0)

    def __call__(self, calls: int) -> float:
        self.calls += calls
        return calls * self.seconds * (1.0 + self.noise * self.rng.standard_exponential())


def test_short_kernels_are_batched() -> None:
    samples, calls = take_samples(FakeClock(1e-6), TimingRules())
    assert calls in (2000, 2001)
    assert samples == pytest.approx([1e-6] * 6)  # six samples reach 95 percent and are all alike
    assert calls_per_sample(5e-3, TimingRules()) == 1


def test_noise_is_sampled_longer() -> None:
    rules = TimingRules(budget=1.0)
    assert len(take_samples(FakeClock(1e-3, 0.001), rules)[0]) == 6
    assert len(take_samples(FakeClock(1e-3, 0.2), rules)[0]) > 20


def test_call_longer_than_the_budget_is_sampled_once() -> None:
    clock = FakeClock(3.0)
    assert take_samples(clock, TimingRules())[0] == [3.0]
    assert clock.calls == 2


@pytest.mark.parametrize("delayed", [[0.2], [0.0], [1e-9], [0.06, 0.06], [5e-3, 0.2]])
def test_calls_of_a_warm_up_that_are_delayed_do_not_shorten_samples(delayed: list[float]) -> None:
    """Nor do calls that seem to take no time lengthen them."""
    right, times = FakeClock(1e-6), iter(delayed)
    samples, calls = take_samples(lambda calls: right(calls) if (late := next(times, None)) is None else late, TimingRules())
    assert 1000 <= calls <= 2001 and samples == pytest.approx([1e-6] * len(samples)) and right.calls < 60_000


@pytest.mark.parametrize("change", [{"budget": 0.0}, {"least": 0}, {"least": 9, "most": 3}, {"sample": -1.0}])
def test_bad_rules_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="timing rules"):
        TimingRules(**change)


@pytest.mark.parametrize("past", [0, ARRAY_OFFSET])
@pytest.mark.parametrize("size", [0, 1, 3, 16, 1000, 1004, 1008, 1012, 1024, 1040, 100_000, 3 << 20])
def test_buffer_guards(size: int, past: int) -> None:
    buffer = GuardedBuffer((size,), np.float32, past)
    assert buffer.address % ALIGN == past
    assert buffer.array.ctypes.data == buffer.address or size == 0
    buffer.array[:] = 1.0
    assert buffer.intact()
    buffer.poison()
    assert np.isnan(buffer.array).all()
    assert buffer.intact()
    buffer._bytes[buffer._start - 1] = 0
    assert not buffer.intact()
    buffer.guard()
    assert buffer.intact()
    if (past // 4 + size) % 16:
        buffer._bytes[buffer._start + 4 * size] = 0
        assert not buffer.intact()


def test_floor_counts_what_caches_cannot_hold() -> None:
    """Three cases by hand on a machine of known figures."""
    hw = hardware.get("cascade_lake")
    compute = operators.gemm(m=512, n=512, k=512)
    assert warm_floor(compute, hw) == pytest.approx(2 * 512**3 / hw.peak_of("float32"))
    small = operators.elementwise("relu", 64, 1024)  # 512 KiB: more than the L1 caches hold, less than the L2 caches
    surplus = (2 * 64 * 1024 * 4 - 2 * 32 * 1024) / hw.level("l2").bandwidth
    assert warm_floor(small, hw) == pytest.approx(max(surplus, 2 * 64 * 1024 * 4 / hw.level("l1").bandwidth))
    large = operators.elementwise("relu", 1 << 26)
    surplus = 2 * (1 << 28) - hw.level("l3").capacity
    assert warm_floor(large, hw) == pytest.approx(surplus / hw.level("dram").bandwidth)


def computed(op: operators.Operator, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """A plain kernel: float32 throughout, sums in sequence, the output rounded to its dtype."""
    values = [decode(a, t.dtype).astype(np.float32) for a, t in zip(inputs, op.inputs, strict=True)]
    a, b = values[:2]
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k]
    for stage, operand in zip((s for s in op.epilogue if s.access is not None), values[2:], strict=True):
        total = total * operand if stage.name == "scale" else total + operand
    if op.output.dtype == "bfloat16":
        return decode(to_bfloat16(total), "bfloat16")
    return total.astype(ARRAY_DTYPE[op.output.dtype])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("k", [1, 7, 300, 4000])
def test_bound_accepts_sequential_sums_and_rejects_a_dropped_term(dtype: str, k: int) -> None:
    op = operators.gemm(m=9, n=11, k=k, dtype=dtype).with_epilogue("bias", "scale", "residual")
    draws = make_draws(op, 3)
    for draw in draws:
        output = computed(op, draw.inputs)
        assert draw.fault(output) == ""
        output[3, 4] = np.nan
        assert "1 of 99 elements wrong; first at (3, 4)" in draw.fault(output)
    if dtype == "float32" and k > 1:
        a = draws[0].inputs[0].copy()
        a[:, 1] = 0  # a term that the kernel forgot
        assert draws[0].fault(computed(op, (a, *draws[0].inputs[1:]))) != ""
        half = tuple(x.astype(np.float16).astype(np.float32) for x in draws[0].inputs)
        assert draws[0].fault(computed(op, half)) != ""


def rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """float32 values with that many bits of mantissa, rounded to nearest, ties away from zero."""
    drop = 23 - bits
    return ((x.view(np.uint32) + np.uint32(1 << (drop - 1))) >> np.uint32(drop) << np.uint32(drop)).view(np.float32)


@pytest.mark.parametrize("k", [1, 7, 300, 4000])
def test_bound_of_tf32_is_of_its_rounding(k: int) -> None:
    """tf32's ten bits pass, bfloat16's seven do not once there are enough elements, nor does a dropped term."""
    op = operators.gemm(m=40, n=50, k=k, dtype="tf32").with_epilogue("bias", "scale", "residual")
    for draw in make_draws(op, 3):
        operands = draw.inputs[2:]
        assert draw.fault(computed(op, draw.inputs)) == ""
        assert draw.fault(computed(op, (*(rounded(x, 10) for x in draw.inputs[:2]), *operands))) == ""
        assert draw.fault(computed(op, (*(rounded(x, 7) for x in draw.inputs[:2]), *operands))) != ""
        a = draw.inputs[0].copy()
        a[:, 0] = 0
        assert draw.fault(computed(op, (a, *draw.inputs[1:]))) != ""
        exact = draw.reference.astype(np.float32)
        fine = operators.gemm(m=40, n=50, k=k, dtype="tf32x3").with_epilogue("bias", "scale", "residual")
        rough = computed(op, (*(rounded(x, 10) for x in draw.inputs[:2]), *operands))
        (again, *_) = make_draws(fine, 3)
        assert np.array_equal(again.inputs[0], make_draws(op, 3)[0].inputs[0])
        assert (np.abs(rough - exact) > again.bound).any()


@pytest.mark.parametrize(
    "text",
    [
        "max_pool2d(n=1, c=2, h=9, w=9, r=3, s=3, stride=2, padding=1)",
        'elementwise("gelu", 5, 7)',
        "gemm(m=4, n=4, k=9)+gelu",
    ],
)
def test_bound_accepts_rounding(text: str) -> None:
    op = operators.parse(text)
    draw = make_draws(op, 0)[0]
    assert draw.fault(draw.reference.astype(np.float32)) == ""
    assert draw.fault(draw.reference.astype(np.float32) * np.float32(1.001) + np.float32(1e-4)) != ""


def test_integers_are_exact() -> None:
    op = operators.gemm(m=4, n=5, k=6, dtype="int8")
    draw = make_draws(op, 0)[0]
    exact = draw.reference.astype(np.int32)
    assert draw.fault(exact) == ""
    exact[2, 2] += 1
    assert draw.fault(exact) != ""


def test_draws_differ_and_repeat() -> None:
    op = operators.gemm(m=4, n=5, k=6)
    first, again, other = make_draws(op, 0), make_draws(op, 0), make_draws(op, 1)
    assert np.array_equal(first[0].inputs[0], again[0].inputs[0])
    assert not np.array_equal(first[0].inputs[0], first[1].inputs[0])
    assert not np.array_equal(first[0].inputs[0], other[0].inputs[0])


def test_cache_of_references_is_bounded() -> None:
    cache = ExpectationCache(limit=1)
    small, large = operators.gemm(m=4, n=5, k=6), operators.gemm(m=40, n=50, k=60)
    draws = cache.get(small, 0)
    assert cache.get(small, 0) is draws
    cache.get(large, 0)
    assert (small, 0) not in cache
    assert (large, 0) in cache


@pytest.mark.parametrize(
    "text",
    [
        "gemm(m=20, n=30, k=9)+bias+relu",
        'batched_gemm(b=2, m=9, n=7, k=5, dtype="bfloat16")+residual',
        'gemm(m=9, n=7, k=90, dtype="tf32")+bias+gelu',
        "gemv(m=33, k=20)+scale",
        "reduce_sum(m=12, k=9)",
        "conv2d(n=2, c=4, h=9, w=8, k=6, r=3, s=2, stride=2, padding=1, groups=2)+bias+gelu",
        "depthwise_conv2d(n=1, c=5, h=9, w=9, r=3, s=3, stride=1, padding=1)+scale",
        "avg_pool2d(n=1, c=4, h=9, w=9, r=3, s=3, stride=2, padding=1)",
        "max_pool2d(n=1, c=4, h=9, w=9, r=3, s=3, stride=2, padding=1)",
        'elementwise("mul", 30, 4)+bias',
        'elementwise("tanh", 30, 4)',
    ],
)
def test_sampled_reference_agrees_with_the_whole_one(text: str) -> None:
    op = operators.parse(text)
    for whole, part in zip(make_draws(op, 5), make_draws(op, 5, full_flops=0), strict=True):
        assert part.index is not None
        assert {0, op.output.size - 1} <= set(part.index.tolist())
        assert np.allclose(whole.reference.reshape(-1)[part.index], part.reference, rtol=1e-12, atol=1e-12)
        assert np.allclose(whole.bound.reshape(-1)[part.index], part.bound, rtol=1e-12)
        output = whole.reference.astype(np.float32)
        if op.output.dtype == "float32":
            assert part.fault(output) == ""
        place = np.unravel_index(int(part.index[3]), output.shape)
        output[place] += 1.0
        assert "1 of" in part.fault(output)
        output[place] = np.nan
        assert "elements are NaN" in part.fault(output)


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


@pytest.mark.parametrize("warmup", [0.0, TimingRules.warmup])
@pytest.mark.parametrize("seconds", [-1e-3, float("nan"), float("inf"), 0.0])
def test_clocks_that_cannot_be_believed(seconds: float, warmup: float) -> None:
    """With `warmup`, a clock that stands still does not keep the warm-up from ending."""
    times = iter([seconds] * 9)
    with pytest.raises(ClockFault, match="the clock says"):
        take_samples(lambda calls: next(times), TimingRules(warmup=warmup))
