"""The cpu backend from a schedule to a time, on this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gensor_gym.measure
from gensor_gym import hardware, operators
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.expectation import make_draws
from gensor_gym.measure.baselines.torch import TorchBaseline, torch_function
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.measure.stats.floor import warm_floor
from gensor_gym.measure.stats.intervals import ratio_interval
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.builders import build_c
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from tests.support.measure_kernels import kernel

QUICK = TimingRules(budget=0.02, sample=5e-4, warmup=1e-3)
OP = operators.gemm(m=64, n=96, k=80)


@pytest.fixture(scope="module")
def hw() -> Hardware:
    return hardware.get("host")


@pytest.fixture(scope="module")
def backend() -> NativeBackend:
    worker = WorkerProcess("cpu", stage_seconds={"verify": 2.0})
    made = NativeBackend("cpu", build_c, lambda hw: "host", QUICK, worker=worker)
    yield made
    made.close()


def draw(hw: Hardware, count: int, seed: int = 0) -> list[Schedule]:
    graph, rng = ConstructionGraph(OP, hw), np.random.default_rng(seed)
    return [graph.random_schedule(rng) for _ in range(count)]


def test_random_schedules_are_right_and_timed(backend: NativeBackend, hw: Hardware) -> None:
    chosen = draw(hw, 4)
    results = backend.measure(OP, [*chosen, chosen[0]], hw)
    assert [m.status for m in results] == [Status.OK] * 5, [m.error for m in results]
    assert results[4] is results[0]  # the same kernel is timed once
    assert all(m.seconds > warm_floor(OP, hw) for m in results)
    assert results[0].conditions["threads"] == hw.units
    assert results[0].conditions["compile_seconds"] >= 0
    assert results[0].digest == backend.digest(OP, chosen[0], hw)


def test_slow_programs_are_cut_short_where_patience_ends(backend: NativeBackend, hw: Hardware) -> None:
    """The unscheduled product takes at least 8 ms, its floor is 0.2 ms: 20 times the floor is one call, 1e9 times many."""
    op = operators.gemm(m=256, n=256, k=256)
    asked = [(op, ConstructionGraph(op, hw).initial())]
    (cut,), (whole,) = (list(backend.together(asked, hw, patience)) for patience in (20.0, 1e9))
    assert cut.status is whole.status is Status.OK
    assert len(cut.samples) == 1 and cut.conditions["cut_short"] and cut.conditions["calls_per_sample"] == 1
    assert "cut_short" not in whole.conditions
    assert 0.2 < cut.seconds / whole.seconds < 5
    assert backend.measure(op, [asked[0][1]], hw)[0].conditions.get("cut_short") is None


def test_illegal_schedule_is_a_status(backend: NativeBackend, hw: Hardware) -> None:
    row = draw(hw, 1)[0].row.copy()
    row[:8] = 7
    (result,) = backend.measure(OP, [Schedule(row)], hw)
    assert result.status is Status.ILLEGAL
    assert result.digest


def test_refused_by_the_compiler_or_the_generator(backend: NativeBackend, hw: Hardware, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Kernel(OP, "c", "native", "this is not C", kernel("right").launches, 0)
    monkeypatch.setattr("gensor_gym.measure.native.generate", lambda *_: bad)
    (result,) = backend.measure(OP, draw(hw, 1, seed=101), hw)
    assert result.status is Status.COMPILE_ERROR
    assert "error" in result.error

    def refuse(*_: object) -> Kernel:
        raise ValueError("not written yet")

    monkeypatch.setattr("gensor_gym.measure.native.generate", refuse)
    (result,) = backend.measure(OP, draw(hw, 1, seed=102), hw)
    assert result.status is Status.COMPILE_ERROR
    assert "not written yet" in result.error


@pytest.mark.thorough
def test_a_bad_kernel_in_a_batch_costs_one_trial(
    backend: NativeBackend, hw: Hardware, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A session over hand-written kernels: every trial before and after the fault is in trace and store."""
    op = kernel("right").operator
    names = ["right", "invalid address", "wrong value", "infinite loop", "modifies an input", "right"]
    graph, rng = ConstructionGraph(op, hw), np.random.default_rng(3)
    chosen = {graph.random_schedule(rng): name for name in names}
    kernels = {s: kernel(name, tag=str(i)) for i, (s, name) in enumerate(chosen.items())}
    monkeypatch.setattr("gensor_gym.measure.native.generate", lambda _op, schedule, _hw: kernels[schedule])
    store = Store(tmp_path / "store.db")
    session = Session(Task(op, hw, backend), Budget(trials=10), store)
    assert len(session.measure(list(chosen))) == 6
    expected = ["OK", "CRASHED", "WRONG_ANSWER", "TIMEOUT", "WRONG_ANSWER", "OK"]
    assert [row.status for row in session.trace] == expected
    assert [record.measurement.status.value for record in store.records()] == expected
    assert session.best[1].seconds == min(row.seconds for row in session.trace)


def test_public_measure(hw: Hardware) -> None:
    result = gensor_gym.measure(OP, draw(hw, 1)[0], hw)
    assert result.status is Status.OK
    assert len(result.samples) >= 5


@pytest.mark.thorough
def test_comparison_with_torch(backend: NativeBackend, hw: Hardware, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from gensor_gym.codegen.build import generate

    a, b = (generate(OP, s, hw) for s in draw(hw, 2))
    samples = backend.compare({"a": a, "b": b}, hw, rounds=6, torch=True)
    assert {name: len(values) for name, values in samples.items()} == {"a": 6, "b": 6, "torch": 6}
    ratio, low, high = ratio_interval(samples["a"], samples["torch"])
    assert 0 < low <= ratio <= high
    with pytest.raises(ValueError, match="taken by the baseline"):
        backend.compare({"torch": a}, hw, torch=True)
    with pytest.raises(WorkerLost, match="SIGSEGV"):
        backend.compare({"x": kernel("invalid address")}, hw)


def test_torch_baseline_is_right_for_every_operator() -> None:
    texts = [
        "gemm(m=4, n=5, k=6)+bias+relu",
        "gemm(m=4, n=5, k=6)+scale+residual+gelu",
        'gemm(m=4, n=5, k=6, dtype="bfloat16")',
        "batched_gemm(b=2, m=3, n=4, k=5)+bias",
        "gemv(m=5, k=7)",
        "reduce_sum(m=3, k=9)",
        "conv2d(n=1, c=4, h=9, w=9, k=6, r=3, s=3, stride=2, padding=1, groups=2)+bias+relu",
        "conv2d(n=1, c=4, h=9, w=9, k=6, r=3, s=3, dilation=2)",
        'conv2d(n=1, c=4, h=9, w=8, k=6, r=3, s=2, stride=2, image="nhwc", weights="rskc", result="nhwc")+bias+residual',
        'max_pool2d(n=2, c=4, h=9, w=8, r=3, s=2, padding=1, image="nhwc")+scale',
        "depthwise_conv2d(n=1, c=4, h=9, w=9, r=3, s=3, stride=1, padding=1)+scale",
        'depthwise_conv2d(n=1, c=4, h=9, w=8, r=3, s=2, stride=2, padding=1, image="nhwc", weights="rskc")+bias',
        "avg_pool2d(n=1, c=4, h=9, w=9, r=3, s=3, stride=2, padding=1)",
        "max_pool2d(n=1, c=4, h=9, w=9, r=3, s=3, stride=2, padding=1)",
        "avg_pool2d(n=1, c=4, h=9, w=9, r=3, s=3, padding=1)",  # torch's own default stride is the window
        "max_pool2d(n=1, c=4, h=9, w=9, r=2, s=3)",
        'elementwise("add", 3, 4)',
        'elementwise("gelu", 3, 4)+bias',
        'gemm(m=64, n=50, k=60, dtype="bfloat16")+bias+gelu',
        'conv2d(n=1, c=4, h=9, w=9, k=6, r=3, s=3, padding=1, dtype="float16")+bias+relu',
        'gemm(m=4, n=5, k=6, weights="nk")+bias',
    ]
    assert {operators.parse(text).name for text in texts} == {op.name for op in operators.resolve("smoke")}
    plain = [operators.parse(text) for text in texts if "2d" not in text]
    for op in [*map(operators.parse, texts), *(op.renamed(name="nobody's") for op in plain)]:  # torch's call by the accesses
        draw = make_draws(op, 0)[0]
        assert TorchBaseline(op, draw.inputs, 1).fault(draw) == "", str(op)
    with pytest.raises(ValueError, match="no torch baseline for 'window': give register_operator one"):
        torch_function(operators.parse(texts[6]).renamed(name="window"), [])


@pytest.mark.parametrize("text", [
    'gemm(m=40, n=50, k=33, dtype="int8")', 'gemm(m=40, n=50, k=33, dtype="int8", weights="nk")+bias+relu+residual',
    'batched_gemm(b=3, m=9, n=20, k=37, dtype="int8")', 'gemv(m=45, k=67, dtype="int8")+bias',
    'reduce_sum(m=45, k=67, dtype="int8")',
])  # fmt: skip
def test_torch_gives_int32_sums(text: str) -> None:
    op = operators.parse(text)
    draw = make_draws(op, 0)[0]
    baseline = TorchBaseline(op, draw.inputs, 1)
    assert baseline.output().dtype == np.int32 and baseline.fault(draw) == ""


@pytest.mark.parametrize("text", [
    'conv2d(n=1, c=4, h=8, w=8, k=8, r=3, s=3, dtype="int8")', 'max_pool2d(n=1, c=4, h=8, w=8, r=2, s=2, stride=2, dtype="int8")',
    'elementwise(name="add", shape=(4, 4), dtype="int8")',
])  # fmt: skip
def test_no_baseline_where_torch_has_no_int32_result(text: str) -> None:
    op = operators.parse(text)
    with pytest.raises(ValueError, match="of int8"):
        TorchBaseline(op, make_draws(op, 0)[0].inputs, 1)
