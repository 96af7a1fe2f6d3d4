"""Programs found once: a second search and `tuned` answer from the store, and only from what holds here and now."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gensor_gym
from agents import optimize
from gensor_gym import ConstructionGraph, Schedule, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.hardware.compiler import find_compiler
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.records import verified
from gensor_gym.measure.records.imported import checked
from gensor_gym.measure.records.store import FINAL, SEARCHED, Record, Store
from gensor_gym.measure.records.tuned import searched
from gensor_gym.measure.session import Budget, Session, Task
from gensor_gym.measure.stats import floor
from tests.support.own_cache import with_this_machine

OP = operators.resolve_one("gemm(m=24, n=32, k=16)")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, which knows this machine."""
    monkeypatch.setenv("GENSOR_GYM_CACHE", with_this_machine(tmp_path))
    return tmp_path / "tuned"


def search() -> object:
    return optimize(OP, strategy="random_walk", trials=3, reuse=True)


def test_what_was_found_is_not_searched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LookupError, match=r"no program of gemm.*reuse=True\) finds one"):
        gensor_gym.tuned(OP)
    first = search()
    assert len(first.trace) == 3
    monkeypatch.setattr(sys.modules["agents.optimizer"], "run", None)  # a search would fail
    again = search()
    assert again.schedule.key == first.schedule.key and again.seconds == first.seconds and again.trace == ()
    kernel = gensor_gym.tuned(str(OP))
    a, b = operators.random_inputs(OP, np.random.default_rng(0))
    assert np.allclose(kernel(a, b), a @ b, atol=1e-4) and np.array_equal(kernel(a, b), first.kernel(a, b))


def test_what_a_search_ended_with_comes_before_a_faster_trial(cache: Path) -> None:
    found = search()
    store, device = Store(cache / "trials.sqlite"), get_backend("cpu", found.task.hardware).device(found.task.hardware)
    other = next(record for record in store.records() if record.schedule != str(found.schedule))
    fast = Measurement(Status.OK, (0.9 * found.seconds,), other.measurement.conditions, "", other.measurement.digest)
    store.put(device, str(OP), other.schedule, fast)
    assert str(search().schedule) == str(found.schedule)
    store.put(device, str(OP), other.schedule, replace(fast, conditions={**fast.conditions, FINAL: True}))
    assert str(search().schedule) == other.schedule


def test_a_longer_search_takes_the_place_of_what_a_shorter_one_found(cache: Path) -> None:
    """The shorter one's result seems faster, from a fast moment; timed again in turns it lost."""
    found = search()
    hw = found.task.hardware
    store = Store(cache / "trials.sqlite")
    backend = get_backend("cpu", hw)
    device = backend.device(hw)
    one, other = [record for record in store.records() if record.measurement.status is Status.OK][:2]
    conditions = {**one.measurement.conditions, FINAL: True, SEARCHED: 4}
    lucky = replace(one.measurement, samples=(1e-3 * one.measurement.seconds,), conditions=conditions)
    store.put(device, str(OP), one.schedule, lucky)
    session = Session(Task(OP, hw), Budget(trials=16), store)
    (_, measured) = session.measure([session.graph.parse(record.schedule) for record in (one, other)])
    session.keep(session.graph.parse(other.schedule), measured)
    finals = [record.schedule for record in store.records() if record.measurement.conditions.get(FINAL)]
    assert one.schedule not in finals and other.schedule in finals
    assert searched(OP, hw, backend, store) == 16


def test_a_search_whose_seconds_ran_out_claims_no_more_trials_than_it_made(cache: Path) -> None:
    store, task = Store(cache / "trials.sqlite"), Task.of(OP)
    session = Session(task, Budget(trials=16), store)
    initial = session.graph.initial()
    (measured,) = session.measure([initial])
    session.budget = Budget(trials=16, seconds=1e-9)
    session.keep(initial, measured)
    assert searched(OP, task.hardware, session.backend, store) == 1


def test_records_of_something_else_are_passed_over(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = search()
    hw = found.task.hardware
    monkeypatch.setattr(floor, "doubted", lambda: hw)
    store, device = Store(cache / "trials.sqlite"), get_backend("cpu", found.task.hardware).device(found.task.hardware)

    def put(name: str, at: str, seconds: float, schedule: str | None = None, **changed: object) -> None:
        conditions = {**found.measurement.conditions, FINAL: True, **changed}
        faster = Measurement(found.measurement.status, (seconds,), conditions, "", name)
        store.put(at, str(OP), schedule or str(found.schedule), faster)

    put("other compiler", device, 1e-9, compiler="cc 0.1")
    put("other machine", "another processor x2", 1e-9)
    put("prepacked", device, 1e-9, prepacked=True)
    row = found.schedule.row.copy()
    row[:8] = 1 << 20
    wide = Schedule(row)
    put("not legal", device, 1e-9, str(wide))
    assert search().seconds == found.seconds
    put("below the floor", device, 1e-9)
    assert search().seconds == found.seconds
    put("the kernel of an earlier version", device, 0.8 * found.seconds)
    assert search().seconds == found.seconds
    put(found.measurement.digest, device, 0.9 * found.seconds)
    assert search().seconds == 0.9 * found.seconds


def test_a_trial_that_outdated_figures_doubted_is_found_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that were measured on a busy machine are too small. A trial may end OK by figures that are measured again."""
    found = search()
    store, hw = Store(cache / "trials.sqlite"), found.task.hardware
    device = get_backend("cpu", hw).device(hw)
    seconds = 0.7 * floor.MARGIN * floor.warm_floor(OP, hw)
    conditions = {**found.measurement.conditions, FINAL: True}
    tried, graph = {record.schedule for record in store.records()}, ConstructionGraph(OP, hw, "extended")
    drawn = (graph.random_schedule(np.random.default_rng(seed)) for seed in range(1, 99))
    other = next(schedule for schedule in drawn if str(schedule) not in tried)
    store.put(device, str(OP), str(other), Measurement(Status.OK, (seconds,), conditions, "", generate(OP, other, hw).digest))
    monkeypatch.setattr(floor, "doubted", lambda: hw)
    assert search().seconds == found.seconds
    better = replace(hw, peak=tuple((dtype, 2 * rate) for dtype, rate in hw.peak))
    monkeypatch.setattr(floor, "doubted", lambda: better)
    assert search().seconds == seconds


def test_a_model_has_nothing_to_reuse(cache: Path) -> None:
    for _ in range(2):
        assert len(optimize(OP, hardware="h200", backend="analytic", strategy="random_walk", trials=3, reuse=True).trace) == 3


def test_a_program_of_another_is_checked_once_before_it_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, asked = ConstructionGraph(OP, "host", "extended"), []
    store, device = Store(cache / "trials.sqlite"), get_backend("cpu", graph.hardware).device(graph.hardware)
    conditions = {"compiler": find_compiler().version}
    for number in range(2):
        schedule = str(graph.random_schedule(np.random.default_rng(number)))
        m = Measurement(Status.OK, (1e-3 * (1 + number),), conditions, "", str(number))
        store.add(checked([Record(device, str(OP), schedule, m, 1.0)], "another's"))
    plain = verified.fault_of
    monkeypatch.setattr(verified, "fault_of", lambda kernel: (asked.append(kernel.digest), plain(kernel))[1])
    first = gensor_gym.tuned(OP)
    gensor_gym.tuned(OP)
    assert asked == [first.digest]
    (cache / "verified.json").chmod(0o666)  # which anybody could have written
    gensor_gym.tuned(OP)
    assert asked == [first.digest] * 2
    (cache / "verified.json").unlink()
    monkeypatch.setattr(verified, "fault_of", lambda kernel: "of no use" if kernel.digest == first.digest else plain(kernel))
    with pytest.warns(RuntimeWarning, match="left out, its kernel is wrong: of no use"):
        assert gensor_gym.tuned(OP).digest != first.digest


def test_what_another_timed_is_timed_here_before_it_is_the_result(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ConstructionGraph(OP, "host", "extended")
    store, device = Store(cache / "trials.sqlite"), get_backend("cpu", graph.hardware).device(graph.hardware)
    conditions, said = {"compiler": find_compiler().version, FINAL: True}, 1.0
    theirs = graph.random_schedule(np.random.default_rng(0))
    record = Record(device, str(OP), str(theirs), Measurement(Status.OK, (said,), conditions, "", "theirs"), 1.0)
    store.add(checked([record], "another's"))
    monkeypatch.setattr(sys.modules["agents.optimizer"], "run", None)  # a search would fail
    first = optimize(OP, trials=1, reuse=True)
    assert first.schedule.key == theirs.key and first.seconds < said and len(first.trace) == 1
    again = optimize(OP, trials=1, reuse=True)
    assert again.seconds == first.seconds and again.trace == ()
    other = graph.random_schedule(np.random.default_rng(1))  # said to be faster, and found not to be
    boast = Measurement(Status.OK, (0.5 * first.seconds,), conditions, "", generate(OP, other, graph.hardware).digest)
    own = replace(first.measurement, samples=(0.9 * first.seconds,), conditions={**first.measurement.conditions, FINAL: True})
    store.put(device, str(OP), str(theirs), own)
    store.add(checked([Record(device, str(OP), str(other), boast, 1.0)], "another's"))
    with monkeypatch.context() as patched:
        slow = replace(own, samples=(2.0,))
        patched.setattr(NativeBackend, "stream", lambda self, op, schedules, hw: (slow for _ in schedules))
        assert gensor_gym.tuned(OP).digest == first.kernel.digest
        second = optimize(OP, trials=1, reuse=True)
    assert second.schedule.key == theirs.key and second.seconds == own.seconds and len(second.trace) == 1


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_a_wrong_kernel_is_found(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = gensor_gym.build(OP, ConstructionGraph(OP, "host").initial(), "host")
    assert verified.fault_of(kernel) == ""

    def spoilt(self: BuiltKernel, *inputs: np.ndarray, out: np.ndarray) -> np.ndarray:
        self.loaded(*inputs, out=out)
        out[3, 3] = value
        return out

    monkeypatch.setattr(BuiltKernel, "__call__", spoilt)
    assert verified.fault_of(kernel)


CALL = """
import numpy as np
op = gensor_gym.operators.resolve_one(sys.argv[1])
a, b = gensor_gym.operators.random_inputs(op, np.random.default_rng(0))
assert np.allclose(found.kernel(a, b), a @ b, atol=1e-4)
"""
FIRST = """
import sys
import gensor_gym
from agents import optimize
found = optimize(sys.argv[1], strategy="random_walk", trials=1, reuse=True)
""" + CALL
SECOND = """
import subprocess, sys, time
import gensor_gym
from agents import optimize
from gensor_gym.measure.session import Session
from numba.core.dispatcher import Dispatcher

def refuse(self, *arguments, **options):
    raise AssertionError(f"{type(self)}: not to be asked for")

Dispatcher._compile_for_args = Session.__init__ = subprocess.Popen.__init__ = refuse
subprocess.Popen.__del__ = lambda self: None
begin = time.process_time()
found = optimize(sys.argv[1], trials=1, reuse=True)
first, begin = time.process_time() - begin, time.process_time()
kernel = gensor_gym.tuned(sys.argv[1])
print(first, time.process_time() - begin)
assert found.trace == () and kernel.digest == found.kernel.digest
""" + CALL


def test_a_new_process_compiles_starts_and_measures_nothing() -> None:
    for script in (FIRST, SECOND):
        done = subprocess.run([sys.executable, "-c", script, str(OP)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert max(map(float, done.stdout.split())) < 0.25, "seconds of processor time, imports of the package left out"
