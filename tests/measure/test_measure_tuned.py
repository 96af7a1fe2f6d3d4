"""Programs found once: a second search and `tuned` answer from the store, and only from what holds here and now."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import gensor_gym
from agents import optimize
from gensor_gym import Schedule, operators
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.records import tuned as module
from gensor_gym.measure.records.store import Store

OP = operators.resolve_one("gemm(m=24, n=32, k=16)")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "tuned_path", lambda: tmp_path / "trials.sqlite")
    monkeypatch.setattr(sys.modules["agents.optimize"], "tuned_path", lambda: tmp_path / "trials.sqlite")
    return tmp_path


def search() -> object:
    return optimize(OP, strategy="random_walk", trials=3, reuse=True)


def test_what_was_found_is_not_searched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LookupError, match=r"no program of gemm.*reuse=True\) finds one"):
        gensor_gym.tuned(OP)
    first = search()
    assert len(first.trace) == 3
    monkeypatch.setattr(sys.modules["agents.optimize"], "run", None)  # a search would fail
    again = search()
    assert again.schedule.key == first.schedule.key and again.seconds == first.seconds and again.trace == ()
    kernel = gensor_gym.tuned(str(OP))
    a, b = operators.random_inputs(OP, np.random.default_rng(0))
    assert np.allclose(kernel(a, b), a @ b, atol=1e-4) and np.array_equal(kernel(a, b), first.kernel(a, b))


def test_records_of_something_else_are_passed_over(cache: Path) -> None:
    found = search()
    store, device = Store(cache / "trials.sqlite"), get_backend("cpu", found.task.hardware).device(found.task.hardware)

    def put(name: str, at: str, seconds: float, schedule: str | None = None, **changed: object) -> None:
        conditions = {**found.measurement.conditions, **changed}
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
    put("faster", device, 1e-9)
    assert search().seconds == 1e-9


def test_a_model_has_nothing_to_reuse(cache: Path) -> None:
    for _ in range(2):
        assert len(optimize(OP, hardware="h200", backend="analytic", strategy="random_walk", trials=3, reuse=True).trace) == 3
