"""Stages of a GPU over a device that answers at once: fused operators and networks are compared, and failures are rows."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.runs.journal import read_rows
from experiments.device.archive import networks as archive
from experiments.device.context import Context
from experiments.device.report import markdown
from experiments.device.stages import STAGES, fused, networks
from experiments.device.work import beside_torch
from experiments.networks import attention, suite
from gensor_gym import hardware, operators
from gensor_gym.codegen import generate
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime import cuda
from gensor_gym.dataflow.suite import make
from gensor_gym.dataflow.table import stand_in
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.measure.emulator.emulator import EmulatedKernels
from gensor_gym.networks.gpu.function import GpuNetwork
from tests.experiments.device.test_gpu_stages import InstantBench, InstantCompilers, InstantDevice, at, seconds_of, stage
from tests.support import networks_cupy
from tests.support.wgmma_kernels import wgmma_schedule

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


torch = pytest.importorskip("torch")



class Small(torch.nn.Module):
    """A table of rows, a normalisation and a product, with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.last = torch.nn.Embedding(9, 12), torch.nn.LayerNorm(12), torch.nn.Linear(12, 4)

    def forward(self, ids: Any) -> Any:
        found = self.norm(self.table(ids))
        return found, torch.relu(self.last(found))


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of two small networks, the schedules of one of which are not to be read, and a machine that answers."""
    broken, small = suite.Workload(lambda: attention.mlp((6, 10, 4)), ((6,),)), suite.Workload(Small, (suite.Ids((5,), 9),))
    monkeypatch.setattr(suite, "SUITE", {"broken": broken, "small": small})
    monkeypatch.setattr(archive, "NAMES", ("broken", "small"))
    archive.draw("h100", tmp_path, "a revision")
    assert archive.is_of(tmp_path, "a revision") and not archive.is_of(tmp_path, "another")
    whole = archive.read(tmp_path)
    whole["networks"]["broken"]["schedules"] = dict.fromkeys(whole["networks"]["broken"]["schedules"], "no schedule")
    lacking = whole["networks"]["small"]["schedules"]
    del lacking[next(iter(lacking))]  # another version of torch may export another piece
    monkeypatch.setattr(archive, "read", lambda folder: whole)
    programs: dict[str, EmulatedKernels] = {}

    monkeypatch.setitem(sys.modules, "cupy", networks_cupy.module())
    monkeypatch.setattr(cuda, "_LOADED", {})
    monkeypatch.setattr(cuda, "_load_module", networks_cupy.loader(programs))
    monkeypatch.setattr(cuda, "launch_dependent", networks_cupy.launch_dependent)
    monkeypatch.setattr(networks, "compile_together", lambda kernels: None)
    monkeypatch.setattr(networks, "_timer", lambda call: lambda calls: 2.0 * calls * len([call()]))
    monkeypatch.setattr(networks, "WARM", 0.0)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    monkeypatch.setattr(torch, "compile", lambda module, dynamic: module)
    return tmp_path


def test_networks_are_compared_and_a_failure_is_a_row(drawn: Path, tmp_path: Path) -> None:
    context = Context(str(tmp_path), str(tmp_path), "one", 600.0, "h100", 0)
    said = networks.run(context)
    rows = {row["key"]: row for row in read_rows(tmp_path / networks.FILE)}
    stages = "", " compiled", " dependent", " pingpong"
    assert list(rows) == [f"{name}{stage}" for stage in stages for name in ("broken", "small")]
    assert "no schedule" in rows["broken"]["error"] and set(said["failed"]) == {f"broken{stage}" for stage in stages}  # type: ignore[call-overload]
    assert rows["small dependent"]["distance"] == 0.0
    assert rows["small pingpong"]["turns"] == [] and said["turns"] == {"small": (0, 0)}
    row = rows["small"]
    assert row["kernels"] == 3 and row["launches"] >= row["kernels"] and row["model_s"] > 0
    assert 0 < row["errors"][networks.OURS] < 1e-5 and row["errors"][networks.FLOAT32] < 1e-5
    assert {name: len(values) for name, values in row["samples"].items()} == dict.fromkeys(
        (networks.OURS, networks.FLOAT32, networks.DEFAULT), networks.ROUNDS
    )
    ours = np.median(row["samples"][networks.OURS])  # a launch of a graph takes a second here, however many calls it has
    assert 0 < ours <= 1.0
    others = (networks.FLOAT32, networks.DEFAULT, networks.COMPILED)
    over = dict(said["over_ours"]["small"])  # type: ignore[index]
    assert over.pop(networks.DEPENDENT) > 0 and over == pytest.approx(dict.fromkeys(others, 2.0 / ours))
    assert said["wrong"] == []
    assert networks.run(context) == said, "rows that are there are not made again"


def test_kernels_with_turns_are_chosen_by_time(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two kernels that have another with turns one is faster so; the network is timed with it alone."""
    made: list[list[Kernel]] = []

    def pingpong(whole: Any, name: str, kernels: list[Kernel]) -> list[Kernel | None]:
        return [replace(kernel, source=f"{kernel.source}// turns\n") if place else None for place, kernel in enumerate(kernels)]

    def with_kernels(self: GpuNetwork, kernels: list[Kernel]) -> GpuNetwork:
        made.append(kernels)
        return GpuNetwork(*self._made_of[:1], kernels)

    def replayed(function: GpuNetwork, only: int | None = None) -> beside_torch.Timer:
        turns = "// turns" in function.tasks.listed[only or 0].kernel.source
        return lambda calls: calls * (0.5 if turns and only == 1 else 1.0)

    monkeypatch.setattr(archive, "pingpong", pingpong)
    monkeypatch.setattr(GpuNetwork, "with_kernels", with_kernels)
    monkeypatch.setattr(networks, "replayed", replayed)
    row = networks.pingpong(archive.read(tmp_path), "small", {}, 0)
    every, chosen = made
    assert ["// turns" in kernel.source for kernel in every] == [False, True, True]
    assert ["// turns" in kernel.source for kernel in chosen] == [False, True, False]
    assert row["distance"] == 0.0 and len(row["samples"][networks.PINGPONG]) == networks.ROUNDS
    assert [turn["seconds"][networks.PINGPONG] for turn in row["turns"]] == [0.5, 1.0]


def test_one_kernel_of_a_network_is_replayed(drawn: Path, tmp_path: Path) -> None:
    """Its graph has the launches of that kernel."""
    _, given, function = networks.opened(archive.read(tmp_path), "small", {})
    function(*given)
    held = function.loaded()
    calls = list[int]()
    held._calls = [lambda place=place: calls.append(place) for place in range(len(held._calls))]
    held.captured(3, 1)
    assert calls == [1, 1, 1]
    calls.clear()
    held.captured(2)
    assert calls == [0, 1, 2, 0, 1, 2]


def test_the_archive_makes_kernels_with_turns_again() -> None:
    """Of those that it lists: a schedule by wgmma with more tiles than run at a time."""
    op = operators.gemm(2048, 2048, 512, dtype="bfloat16")
    schedule = wgmma_schedule(op, [64, 128], [128, 128], stages=4)
    kernel = generate(op, schedule, "h100")
    known = {"schedules": {str(op): str(schedule)}, "pingpong": [str(op)]}
    whole = {"machine": "h100", "compiler": "another", "networks": {"listed": known, "not": {**known, "pingpong": []}}}
    listed, no = (archive.pingpong(whole, name, [kernel]) for name in ("listed", "not"))
    assert listed[0] is not None and "turn_parity" in listed[0].source and no == [None]


def test_a_wrong_network_is_seen() -> None:
    reference = torch.ones(2, 3, dtype=torch.float64)
    assert networks.distance(np.ones((2, 3), np.float32), reference) == 0.0
    assert networks.distance((torch.ones(2, 3), torch.full((2, 3), 1.5)), (reference, reference)) == 0.5
    assert np.isnan(networks.distance((torch.ones(2, 3), torch.full((2, 3), np.nan)), (reference, reference)))
    with pytest.raises(ValueError, match=r"of shape \(3,\), expected \(2, 3\)"):
        networks.distance(torch.ones(3), reference)


def test_a_wrong_network_has_no_speed(tmp_path: Path) -> None:
    samples = {networks.OURS: [1.0], networks.DEFAULT: [3.0]}
    rows: list[dict[str, Any]] = [
        {"key": name, "run": "one", "network": name, "samples": samples, "errors": {networks.OURS: error}}
        for name, error in (("right", 1e-6), ("far", 0.1), ("nan", float("nan")))
    ]
    turns = [{"operator": "one", "seconds": {networks.OURS: 1.0, networks.PINGPONG: seconds}} for seconds in (0.5, 1.0)]
    rows += [
        {"key": f"right {of}", "run": "one", "network": "right", "distance": far, "samples": {networks.OURS: [1.0], of: [0.5]}}
        for of, far in (("near", 1e-6), ("apart", 0.1))
    ]
    rows[-1]["turns"] = turns
    (tmp_path / networks.FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = networks.digest(Context(str(tmp_path), "", "one", 1.0))
    assert said["wrong"] == ["far", "nan", "right apart"] and said["turns"] == {"right": (2, 1)}
    assert said["over_ours"] == {"right": {networks.DEFAULT: 3.0, "near": 0.5}}
