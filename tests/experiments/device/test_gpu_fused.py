"""Stage `fused` over a device that answers at once: rows, faults, what is said in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.runs.journal import read_rows
from experiments.device.report import markdown
from experiments.device.stages import STAGES, fused
from experiments.device.work import beside_torch
from gensor_gym import hardware
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.dataflow.suite import make
from gensor_gym.dataflow.table import stand_in
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
from tests.experiments.device.test_gpu_stages import InstantBench, InstantCompilers, InstantDevice, at, seconds_of, stage

OPERATORS = {"small": "softmax(m=7, n=77)", "large/softmax": "softmax(m=64, n=96)"}


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.device.work.prebuilt.Bench", InstantBench)
    monkeypatch.setattr("experiments.device.work.prebuilt.CompilePool", InstantCompilers)
    monkeypatch.setattr(fused, "operators", lambda: OPERATORS)
    monkeypatch.setattr(fused, "beside_torch", beside)
    monkeypatch.setattr(InstantDevice, "broken", 0)


def beside(kernel: Kernel, rounds: int, seed: int) -> dict[str, list[float]]:
    """Torch takes three times as long, compiled twice, a copy half."""
    return {name: [part * seconds_of(kernel)] * rounds for name, part in TIMES.items()}


TIMES = {"gensor_gym": 1.0, "torch": 3.0, "torch.compile": 2.0, "copy": 0.5}


def test_the_fastest_candidate_is_compared(tmp_path: Path) -> None:
    said = fused.run(at(tmp_path))
    rows = {row["key"]: row for row in read_rows(tmp_path / fused.FILE)}
    assert set(rows) == set(OPERATORS)
    for row in rows.values():
        assert 1 < len(row["trials"]) <= fused.CANDIDATES and row["over_torch"] == pytest.approx(2.0)
        seconds = {trial["schedule"]: trial["seconds"] for trial in row["trials"]}
        assert seconds[row["schedule"]] == min(seconds.values())
    assert said["timed"] == 2 and said["of_copy"] == {"large/softmax": pytest.approx(0.5)}
    assert said["geomean_over_torch"] == pytest.approx(2.0) and not said["errors"]
    text = stage("fused", said)
    assert "| small | 2.00 |" in text and "| large/softmax | 2.00 | 0.50 |" in text


def test_a_second_run_of_the_same_name_does_nothing_again(tmp_path: Path) -> None:
    fused.run(at(tmp_path))
    before = InstantDevice.trials
    assert fused.run(at(tmp_path))["timed"] == 2 and InstantDevice.trials == before


def test_wrong_kernels_and_refusals_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InstantDevice, "broken", 1)
    assert fused.run(at(tmp_path / "wrong"))["errors"] == dict.fromkeys(OPERATORS, "no candidate ran well")
    monkeypatch.setattr(InstantDevice, "broken", 0)

    def refused(kernel: Kernel, rounds: int, seed: int) -> dict[str, list[float]]:
        raise ValueError("pruned before timing: 8 bytes of register spills")

    monkeypatch.setattr(fused, "beside_torch", refused)
    said = fused.run(at(tmp_path / "refused"))
    assert said["timed"] == 0 and "register spills" in str(said["errors"]) and "register spills" in stage("fused", said)


def test_candidates_are_the_first_by_the_model() -> None:
    graph = GirGraph(make("layernorm", m=33, n=100), hardware.get("h100"))
    found = fused.ranked(graph, 5)
    seconds = [graph.latency(schedule) for schedule in found]
    assert seconds == sorted(seconds) and seconds[0] == graph.optimum()[1]
    assert all(isinstance(schedule, GirSchedule) and graph.is_legal(schedule) for schedule in found)


def test_what_is_asked_first_is_in_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    names = list(fused.operators())
    assert names[: len(fused.FIRST)] == list(fused.FIRST) and set(names) == {*stand_in(), *fused.LARGE}
    assert len(names) == len(set(names))


def test_large_operators_move_as_many_bytes_as_they_say() -> None:
    assert all(fused.fused_operator(text).compulsory_bytes >= 256 << 20 for text in fused.LARGE.values())


def test_rounds_take_every_contestant_in_turn() -> None:
    asked: list[tuple[str, int]] = []

    def timer(name: str, each: float) -> beside_torch.Timer:
        def seconds(calls: int) -> float:
            asked.append((name, calls))
            return calls * each

        return seconds

    found = beside_torch.interleaved({"fast": timer("fast", 1e-6), "slow": timer("slow", 1.0)}, 3, 0)
    assert found == {"fast": [pytest.approx(1e-6)] * 3, "slow": [1.0] * 3}
    assert [calls for name, calls in asked[2:] if name == "slow"] == [1] * 3
    assert all(abs(calls - 2000) <= 1 for name, calls in asked[2:] if name == "fast")
    assert all({name for name, _ in asked[2 + 2 * n : 4 + 2 * n]} == {"fast", "slow"} for n in range(3))


def test_it_runs_where_it_is_asked_for() -> None:
    assert "fused" in {one.name for one in STAGES}
    assert callable(markdown)
