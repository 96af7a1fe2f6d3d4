"""Fused operators measured, stored and found again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import gensor_gym
from agents.optimizer import Result, optimize
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.measure.answers.fused import fused_draws
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.records.imported import fault
from gensor_gym.measure.records.store import Store
from tests.support.own_cache import with_this_machine

OWN = """def own(x: float32[9, 33], z: float32[9, 33]):
    s = x * 2.0 + z
    top = reduce_max(s, axes=[1])
    y = s - top
    return s, y
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of its own, which knows this machine."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GENSOR_GYM_CACHE", with_this_machine(folder))
        yield folder / "tuned"


@pytest.fixture(scope="module")
def found(cache: Path) -> Result:
    """A search that was measured here."""
    return optimize(OWN, trials=2, reuse=True)


def test_a_graph_of_ones_own_is_searched_once_and_found_again(found: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(found.trace) == 2 and {row.status for row in found.trace} == {"OK"} and 0 < found.seconds < 1
    monkeypatch.setattr(sys.modules["agents.optimizer"], "run", None)  # a search would fail
    again = optimize(OWN, trials=2, reuse=True)
    assert again.schedule == found.schedule and again.seconds == found.seconds and again.trace == ()


def test_the_kernel_that_was_found_answers(found: Result) -> None:
    draw = fused_draws(found.task.operator, 3)[1]  # type: ignore[arg-type]
    assert draw.fault(found.kernel(*draw.inputs)) == "" and draw.fault(gensor_gym.tuned(OWN)(*draw.inputs)) == ""
    with pytest.raises(LookupError, match=r"no program of softmax\(m=9, n=33\)"):
        gensor_gym.tuned("softmax(m=9, n=33)")


def test_records_are_of_the_operator_by_its_text_and_read_back(found: Result, cache: Path) -> None:
    device = get_backend("cpu", found.task.hardware).device(found.task.hardware)
    records = [record for record in Store(cache / "trials.sqlite").records() if record.device == device]
    assert {record.operator for record in records} == {str(found.task.operator)} and "own@" in records[0].operator
    assert found.schedule in {GirSchedule.parse(record.schedule) for record in records}
    suite = replace(records[0], operator="softmax(m=9, n=33)", schedule="vector=4 place=sram")
    assert fault(suite) == ""
    for change, words in (
        ({"schedule": "vector=16 tile=8"}, "not legal here"), ({"schedule": "vector=5"}, "expected one of 1, 4, 8, 16"),
        ({"operator": "softmax(m=0, n=33)"}, "m=0, expected a whole number"), ({"operator": "sofmax(m=9, n=33)"}, "softmax"),
    ):  # fmt: skip
        assert words in fault(replace(suite, **change))
