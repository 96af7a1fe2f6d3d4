"""Backends by name, and what a session charges: trials, evaluations, seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gensor_gym.measure
from agents.optimizer import run
from gensor_gym import hardware, operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import LEVEL
from gensor_gym.measure import backend as backend_module
from gensor_gym.measure.analytic import AnalyticBackend, program_digest
from gensor_gym.measure.backend import BACKENDS, get_backend
from gensor_gym.measure.devices import presence as cuda_presence
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.measure.records.imported import checked
from gensor_gym.measure.records.store import Added, Record, Selection, Store
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task

OP = operators.gemm(m=64, n=48, k=32)
HW = hardware.get("h200")
GRAPH = ConstructionGraph(OP, HW)


def schedules(count: int, seed: int = 0) -> list[Schedule]:
    """Different programs."""
    rng = np.random.default_rng(seed)
    found: dict[str, Schedule] = {}
    while len(found) < count:
        schedule = GRAPH.random_schedule(rng)
        found[program_digest(OP, schedule, HW)] = schedule
    return list(found.values())


class Counting(AnalyticBackend):
    """The model, posing as a timer whose results are worth storing; counts what it is asked for."""

    name = "counting"
    stored = True

    def __init__(self, pause: float = 0.0, status: Status = Status.OK) -> None:
        self.measured: list[Schedule] = []
        self.pause, self.status = pause, status

    def stream(self, op: operators.Operator, schedules: Sequence[Schedule], hw: object) -> Iterator[Measurement]:
        for schedule in schedules:
            self.measured.append(schedule)
            time.sleep(self.pause)
            (found,) = super().stream(op, [schedule], hw)
            yield Measurement(self.status, found.samples, {}, "", found.digest)


def session(backend: object, store: Store | None = None, **limits: object) -> Session:
    return Session(Task(OP, HW, backend), Budget(**limits), store)


def test_batch_is_cut_to_the_budget_and_the_next_call_raises() -> None:
    backend = Counting()
    s = session(backend, trials=5)
    batch = schedules(8)
    assert len(s.measure(batch[:3])) == 3
    assert len(s.measure(batch)) == 5  # three known ones are free, two are left
    with pytest.raises(BudgetSpent, match="5 of 5 trials"):
        s.measure(batch[5:])
    assert len(backend.measured) == 5
    assert s.trials == len(s.trace) == 5
    assert [row.trial for row in s.trace] == [0, 1, 2, 3, 4]
    assert [row.schedule for row in s.trace] == [str(x) for x in batch[:5]]
    assert len(s.measure(batch[:5])) == 5  # what was tried is still answered
    assert s.measure([]) == []


def test_duplicates_are_free() -> None:
    backend = Counting()
    s = session(backend, trials=2)
    a, b = schedules(2)
    deeper = a.row.copy()
    deeper[LEVEL] = 1 - deeper[LEVEL]
    answers = s.measure([a, a, Schedule(deeper), b, a])
    assert len(answers) == 5
    assert len({m.digest for m in answers}) == 2
    assert len(backend.measured) == s.trials == 2


def test_failures_are_trials() -> None:
    s = session(Counting(status=Status.CRASHED), trials=2)
    s.measure(schedules(2))
    assert [row.status for row in s.trace] == ["CRASHED", "CRASHED"]
    assert all(row.seconds == float("inf") for row in s.trace)
    assert s.best is None
    with pytest.raises(BudgetSpent):
        s.measure(schedules(1, seed=5))


def test_best_is_the_fastest() -> None:
    s = session("analytic")
    batch = schedules(30)
    answers = s.measure(batch)
    best = min(range(30), key=lambda i: answers[i].seconds)
    assert s.best == (batch[best], answers[best])
    assert answers[best].seconds == GRAPH.latency(batch[best])


def test_store_answers_but_charges(tmp_path: Path) -> None:
    """A second search does the same as the first and runs nothing."""
    store = Store(tmp_path / "s.db")
    batch = schedules(4)
    first = session(Counting(pause=0.02), store, trials=3)
    answers = first.measure(batch)
    again = Counting()
    second = session(again, store, trials=3)
    assert [m.samples for m in second.measure(batch)] == [m.samples for m in answers]
    assert again.measured == []
    with pytest.raises(BudgetSpent):
        second.measure(batch[3:])
    assert second.elapsed >= 0.06  # the seconds of the trials count as if they had been run
    assert [row.schedule for row in second.trace] == [row.schedule for row in first.trace]


def test_another_s_times_answer_nothing(tmp_path: Path) -> None:
    store, batch, device = Store(tmp_path / "s.db"), schedules(2), Counting().device(HW)
    session(Counting(), store).measure(batch)
    theirs = [replace(one, device=device, created=one.created + 9.0) for one in store.records()]
    theirs = checked([replace(one, measurement=faster(one.measurement)) for one in theirs], "another's")
    assert store.add(theirs[:1]) == Added(kept=1)  # what was measured here stays
    store.prune(Selection(device=device))
    store.add(theirs)
    again = Counting()
    answers = session(again, store).measure(batch)
    assert again.measured == batch and all(1e-9 not in m.samples for m in answers)
    assert session(Counting(), store).measure(batch)[0].samples == answers[0].samples
    assert store.add(theirs) == Added(kept=2)


def test_another_compiler_s_times_answer_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gensor_gym.measure.session.target_of", lambda hw: SimpleNamespace(compiler=lambda: "cc 2.0"))
    store, batch, device = Store(tmp_path / "s.db"), schedules(2), Counting().device(HW)
    session(Counting(), store).measure(batch)
    for one, made_by in zip(list(store.records()), ("cc 2.0", "cc 1.0"), strict=True):
        kept = replace(one.measurement, conditions={**one.measurement.conditions, "compiler": made_by})
        store.put(device, one.operator, one.schedule, kept)
    again = Counting()
    session(again, store).measure(batch)
    assert again.measured == batch[1:]


def faster(measurement: Measurement) -> Measurement:
    return replace(measurement, samples=(1e-9,))


def test_a_search_counts_the_time_before_it_asks_for_anything() -> None:
    class Slow:
        space = "gensor"

        def search(self, session: Session, rng: np.random.Generator) -> None:
            time.sleep(0.05)
            session.measure(schedules(1))

    s = session("analytic")
    run(Slow(), s, 0)
    assert s.trace[0].elapsed_s >= 0.05


@pytest.mark.parametrize("status", [Status.TIMEOUT, Status.CRASHED, Status.IMPLAUSIBLE])
def test_moods_of_the_machine_are_stored_and_tried_again(tmp_path: Path, status: Status) -> None:
    store = Store(tmp_path / "s.db")
    batch = schedules(2)
    session(Counting(status=status), store).measure(batch)
    assert [r.measurement.status for r in store.records()] == [status] * 2
    again = Counting()
    assert [m.status for m in session(again, store).measure(batch)] == [Status.OK] * 2
    assert len(again.measured) == 2


def test_seconds_end_a_batch() -> None:
    backend = Counting(pause=0.05)
    s = session(backend, seconds=0.12)
    answers = s.measure(schedules(20))
    assert 1 <= len(answers) <= 4
    assert len(answers) == len(backend.measured) == s.trials
    with pytest.raises(BudgetSpent, match="seconds spent"):
        s.measure(schedules(1, seed=9))
    with pytest.raises(BudgetSpent):
        s.predict(schedules(1))


def test_predictions_are_charged_before_they_are_made() -> None:
    s = session("analytic", evaluations=10)
    batch = schedules(6)
    rows = s.graph.stack(batch)
    assert np.array_equal(s.predict(batch), GRAPH.latencies(rows))
    with pytest.raises(BudgetSpent, match="6 of 10 model evaluations spent, 6 more"):
        s.predict(rows)
    assert s.evaluations == 6
    assert s.predict(rows[:4]).shape == (4,)
    s.measure(batch[:1])
    assert s.trace[0].evaluations == 10


@pytest.mark.parametrize("limits", [{"trials": 0}, {"evaluations": -1}, {"seconds": 0.0}])
def test_bad_budget_is_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        Budget(**limits)


def test_task_from_text() -> None:
    task = Task.of("gemm(m=64, n=48, k=32)", "h200", "analytic")
    assert (task.operator, task.hardware) == (OP, HW)


def test_registry_and_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    host = hardware.get("cascade_lake")
    assert get_backend("auto", host).name == "cpu"
    assert get_backend("analytic", HW) is get_backend("analytic", host)
    own = Counting()
    assert get_backend(own, HW) is own
    monkeypatch.setitem(BACKENDS, "mine", Counting)
    assert get_backend("mine", HW).name == "counting"
    monkeypatch.setattr(cuda_presence, "gpu_names", lambda: ())
    with pytest.raises(ValueError, match="no NVIDIA GPU.*analytic, recorded or emulated"):
        get_backend("auto", HW)
    monkeypatch.setattr(cuda_presence, "gpu_names", lambda: ("NVIDIA A100-SXM4-80GB",))
    with pytest.raises(ValueError, match="is a NVIDIA A100"):
        get_backend("auto", HW)
    with pytest.raises(ValueError, match="no backend 'gpu'; accepted: auto, analytic"):
        get_backend("gpu", HW)
    with pytest.raises(ValueError, match="cannot run h200"):
        get_backend("cpu", HW)
    with pytest.raises(ValueError, match="cannot run cascade_lake"):
        get_backend("cuda", host)
    with pytest.raises(ValueError, match="table"):
        get_backend("recorded", HW)


def test_cuda_by_name_needs_a_device_of_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module, "_live", {})
    monkeypatch.setattr(cuda_presence, "gpu_names", lambda: ())
    message = "'cuda' cannot run here: no NVIDIA GPU.*analytic, recorded or emulated"
    with pytest.raises(ValueError, match=message):
        get_backend("cuda", HW)
    with pytest.raises(ValueError, match=message):
        Session(Task(OP, HW, "cuda"), Budget(trials=1))
    monkeypatch.setattr(cuda_presence, "gpu_names", lambda: ("NVIDIA A100-SXM4-80GB",))
    monkeypatch.setattr(cuda_presence.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="'cuda' cannot run here: CuPy is not installed"):
        get_backend("cuda", HW)
    monkeypatch.setattr(cuda_presence.importlib.util, "find_spec", lambda name: name)
    backend = get_backend("cuda", HW)
    assert (backend.name, backend.device(HW)) == ("cuda", "NVIDIA A100-SXM4-80GB")


@pytest.mark.parametrize(
    ("name", "product", "same"),
    [
        ("h200", "NVIDIA H200", True),
        ("h100", "NVIDIA H100 80GB HBM3", True),
        ("a100", "NVIDIA A100 80GB PCIe", True),
        ("rtx4090", "NVIDIA GeForce RTX 4090", True),
        ("t4", "Tesla T4", True),
        ("a100", "NVIDIA RTX A1000 Laptop GPU", False),
        ("h100", "NVIDIA H200", False),
        ("t4", "NVIDIA T400", False),
    ],
)
def test_names_of_gpus(name: str, product: str, same: bool) -> None:
    assert cuda_presence.is_named(hardware.get(name), product) is same


def test_measure_is_a_function_and_a_package() -> None:
    a = schedules(1)[0]
    result = gensor_gym.measure(OP, a, HW, backend="analytic")
    assert result.status is Status.OK
    assert result.seconds == GRAPH.latency(a)
    assert gensor_gym.measure.measure("gemm(m=64, n=48, k=32)", a, "h200", "analytic") == result
    illegal = a.row.copy()
    illegal[0:8] = 7
    assert gensor_gym.measure(OP, Schedule(illegal), HW, backend="analytic").status is Status.ILLEGAL


def test_a_store_as_a_recorded_table(tmp_path: Path) -> None:
    (a,) = schedules(1)
    store, m = Store(tmp_path / "s.db"), Measurement(Status.OK, (2.0, 1.0, 3.0), {"threads": 1}, "", program_digest(OP, a, HW))
    store.put("gpu", str(OP), str(a), m)
    store.close()
    backend = RecordedBackend(tmp_path / "s.db")
    assert (len(backend), backend.device(HW)) == (1, "gpu")
    assert session(backend, trials=1).measure([a])[0].seconds == 2.0
    two = [Record(d, str(OP), str(a), m, 0.0) for d in ("x", "y")]
    with pytest.raises(ValueError, match="mixes devices"):
        RecordedBackend(two)
    assert len(RecordedBackend(two, device="x")) == 1
    with pytest.raises(ValueError, match="no recorded table"):
        RecordedBackend(tmp_path / "none.jsonl")
