"""The stages of `make gpu` from end to end over a device that answers at once: rows, resumption, faults, summaries."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from agents import Strategy
from agents.policies.learned import Learned
from agents.runs.journal import read_rows
from experiments.device.context import Context
from experiments.device.report import markdown
from experiments.device.stages import adaptive, correctness
from experiments.device.stages import operators as operators_stage
from experiments.device.stages.operators import standings
from experiments.device.table import Contest
from experiments.device.work import prebuilt
from experiments.device.work.makers import Programs
from experiments.device.work.prebuilt import SEARCH
from gensor_gym import hardware, operators
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend, make_kernel
from gensor_gym.measure.session import Session
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.pool import LocalPool
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Built, Trial

HW = hardware.get("h200")
GEMM, SUM = operators.gemm(1024, 1024, 1024), operators.reduce_sum(2048, 768)
SMALL_WALKS = {"walkers": 4, "steps": 32, "refiners": 2, "refine_steps": 8, "descents": 2}
POLICIES = Contest(
    (operators.gemv(96, 64), operators.reduce_sum(64, 96)),
    {
        "markov": ("markov", {**SMALL_WALKS, "space": "gensor"}),
        "columns": ("columns", {"space": "gensor", "checkpoint": "agents/data/policies/columns_gpu", "episodes": 8}),
        "ppo": ("ppo", {"space": "gensor", "checkpoint": "agents/data/policies/ppo_successors_gpu", "episodes": 2}),
        "random": ("random", {"space": "gensor"}),
    },
    3,
    (0, 1),
)
"""Searches with and without policies over small operators, with two seeds."""
ONE = Contest((operators.gemv(1024, 1024),), {"markov": ("markov", SMALL_WALKS), "none": ("none", {})}, 3)
"""A strategy, and one that there is not."""


class InstantDevice(NativeBackend):
    """Real schedules and kernels; a kernel's time is a number made of its digest, torch takes one microsecond."""

    fail: str = ""
    """What torch's side of a comparison raises."""
    broken: int = 0
    """Every so manieth kernel gives a wrong answer, 0 for none."""
    trials = 0

    def __init__(self, rules: TimingRules) -> None:
        super().__init__("cuda", instant, lambda hw: "NVIDIA H200", rules, pool=InstantPool(self))

    def trial(self, built: Built | Measurement, hw: Hardware) -> Measurement:
        if isinstance(built, Measurement):
            return built
        InstantDevice.trials += 1
        digest = built.kernel.digest
        if self.broken and int(digest[:4], 16) % self.broken == 0:
            return Measurement(Status.WRONG_ANSWER, error="first at (0, 0)", digest=digest)
        return Measurement(Status.OK, (seconds_of(built.kernel),) * 5, {"clock": 1980}, "", digest)

    def compare(
        self, kernels: dict[str, Kernel], hw: Hardware, rounds: int = 20, torch: bool = False, seed: int = 0,
        torch_compile: bool = False,
    ) -> dict[str, list[float]]:  # fmt: skip
        if torch and self.fail:
            raise RuntimeError(self.fail)
        names = (["torch"] if torch else []) + (["torch.compile"] if torch_compile else [])
        return {n: [seconds_of(k)] * rounds for n, k in kernels.items()} | {n: [1e-6] * rounds for n in names}


def instant(kernel: Kernel) -> Built:
    return Built(kernel, "")


class InstantBench:
    """In place of `prebuilt.Bench`."""

    def __init__(self, hw: Hardware) -> None:
        self.device, self.hw = InstantDevice(SEARCH), hw

    def trial(self, built: Built | Measurement, rules: TimingRules) -> Measurement:
        return self.device.trial(built, self.hw)

    def close(self) -> None:
        self.device.close()


class InstantCompilers:
    """In place of `CompilePool`."""

    def __init__(self, *_: object, **__: object) -> None:
        """Nothing starts."""

    def __call__(self, kernel: Kernel) -> Built:
        return Built(kernel, "")

    def close(self) -> None:
        """Nothing ends."""


class InstantPool(LocalPool):
    """Asks the device above instead of a worker."""

    def __init__(self, device: InstantDevice) -> None:
        super().__init__(instant, [WorkerProcess("cuda")])
        self.device = device

    def time(self, worker: WorkerProcess, trial: Trial, built: Built | Measurement) -> Measurement:
        return self.device.trial(built, HW)


def seconds_of(kernel: Kernel) -> float:
    return (1 + int(kernel.digest[:6], 16) / 2**24) * 1e-6


def threads() -> Executor:
    """Makers in this process, where what is patched holds."""
    return ThreadPoolExecutor(2)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> type[InstantDevice]:
    return fake_device(monkeypatch)


def fake_device(monkeypatch: pytest.MonkeyPatch) -> type[InstantDevice]:
    """Stages over small operators and a device that answers at once."""
    for module in (operators_stage, adaptive):
        monkeypatch.setattr(module, "device_backends", lambda *rules: [InstantDevice(one) for one in rules])
    monkeypatch.setattr(prebuilt, "CompilePool", InstantCompilers)
    for module in (prebuilt, correctness, operators_stage):
        monkeypatch.setattr(module, "Bench", InstantBench)
    monkeypatch.setattr(operators_stage, "read_operators", lambda: {"gemm": GEMM, "sum": SUM})
    monkeypatch.setattr(adaptive, "read_experiment", lambda file: POLICIES)
    for module in (correctness, operators_stage):
        monkeypatch.setattr(module, "open_makers", threads)
    monkeypatch.setattr(correctness, "FAMILIES", ("gemm(m=13, n=11, k=7)", "gemv(m=7, k=99)"))
    monkeypatch.setattr(InstantDevice, "fail", "")
    monkeypatch.setattr(InstantDevice, "broken", 0)
    return InstantDevice


def at(folder: Path, run: str = "run1", seconds: float = 600.0) -> Context:
    return Context(str(folder), str(folder / f"scratch of {run}"), run, seconds)


def stage(name: str, result: dict) -> str:
    """The summary's text of one stage."""
    line = {"status": "done", "seconds": 1.0, "attempts": 1, "error": "", "result": result}
    return markdown({"hardware": "h200", "machine": {"gpu": {}}, "stages": {name: line}})


def test_correctness_counts_and_shows_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = correctness.run(at(tmp_path))
    assert found["checked"] == found["right"] == 2 * correctness.PER_OPERATOR
    assert found["failures"] == []
    monkeypatch.setattr(InstantDevice, "broken", 2)
    found = correctness.run(at(tmp_path, "run2"))
    assert 0 < found["right"] < found["checked"] == 2 * correctness.PER_OPERATOR
    assert found["statuses"]["WRONG_ANSWER"] == found["checked"] - found["right"]
    failed = [row for row in read_rows(tmp_path / "correctness.jsonl") if row["status"] == "WRONG_ANSWER"]
    assert all("__global__" in row["source"] and row["samples"] == [] for row in failed)
    assert "first at (0, 0)" in stage("correctness", found)


def test_an_operator_without_candidates_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(op: object, machine: str, seed: int) -> Programs:
        if op is GEMM:
            raise OSError("no space left")
        return [(schedule, make_kernel(SUM, schedule, HW)) for schedule in operators_stage.candidates(SUM, HW, 0)[:3]]

    monkeypatch.setattr(operators_stage, "made", made)
    found = operators_stage.run(at(tmp_path))
    assert found["errors"] == {"gemm": "no candidates: OSError: no space left"}
    assert found["speedup_over"]["sum"] and found["timed"] == 2


def test_when_time_is_up_one_candidate_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker that has an operator ends it; no other is begun."""
    left = iter([100.0] * 3)
    monkeypatch.setattr(operators_stage, "WORKERS", 1)
    monkeypatch.setattr(Context, "left", property(lambda self: next(left, 0.0)))
    operators_stage.run(at(tmp_path, seconds=100.0))
    rows = read_rows(tmp_path / "operators.jsonl")
    assert [(row["key"], len(row["trials"])) for row in rows] == [("gemm", 1)] and "speedup_over" in rows[0]


@pytest.mark.thorough
def test_operators_against_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = operators_stage.run(at(tmp_path))
    assert found["errors"] == {}
    rows = {row["key"]: row for row in reversed(read_rows(tmp_path / "operators.jsonl"))}
    assert set(rows) == {"gemm", "sum", "gemm torch.compile", "sum torch.compile"}
    row = rows["gemm"]
    best = min(trial["seconds"] for trial in row["trials"])
    assert row["seconds"]["gensor_gym"]["median"] == pytest.approx(best)
    assert row["speedup_over"]["torch"]["median"] == pytest.approx(1e-6 / best)
    assert row["tflops"]["torch"] == pytest.approx(GEMM.flops / 1e-6 / 1e12)
    assert len(row["samples"]["torch"]) == operators_stage.ROUNDS
    assert len(row["trials"]) == len(operators_stage.candidates(GEMM, HW, 0))  # there was time for every candidate
    assert "| gemm |" in stage("operators", found)
    monkeypatch.setattr(InstantDevice, "fail", "No module named 'torch'")
    found = operators_stage.run(at(tmp_path, "run2"))
    assert found["timed"] == 2  # without torch our own times stand, and why stands beside them
    assert found["geomean_over_torch"] is None
    assert "No module named 'torch'" in stage("operators", found)


def test_strategies_share_trials_and_one_that_cannot_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "read_experiment", lambda file: ONE)
    found = adaptive.run(at(tmp_path))
    assert found["trials"] == 3
    assert "no strategy 'none'" in found["not_run"]["none"]
    assert found["winners_of_the_means"] == {"markov": 1}
    assert found["over_first"] == {}  # one operator says nothing about others
    rows = read_rows(tmp_path / adaptive.FILE)
    trials = [row for row in rows if row["kind"] == "trial"]
    names = {
        "operator",
        "hardware",
        "backend",
        "strategy",
        "seed",
        "trial",
        "elapsed_s",
        "schedule",
        "seconds",
        "status",
    }
    assert all(names <= set(row) for row in trials)
    (together,) = (row for row in rows if row["kind"] == "together")
    assert set(together["samples"]) == {"markov", "torch"}
    assert "none did not run" in stage("adaptive", found)


@pytest.mark.thorough
def test_the_policy_is_compared_with_traverser_and_random_programs(tmp_path: Path) -> None:
    """The shipped policy, every seed, and ratios that are those of the winners' times."""
    pytest.importorskip("torch")
    context = at(tmp_path)
    found = adaptive.run(context)
    assert found["not_run"] == {} and found["cut_short"] == [] and found["trials"] == 4 * 3 * 2 * 2
    rows = read_rows(tmp_path / adaptive.FILE)
    searches = [row for row in rows if row["kind"] == "search"]
    assert {(row["strategy"], row["seed"], row["label"]) for row in searches} == {
        (name, seed, f"{name}/{seed}") for name in POLICIES.strategies for seed in POLICIES.seeds
    }
    assert {row["space"] for row in searches} == {"gensor"} and {row["trials"] for row in searches} == {3}
    together = {row["operator"]: row["samples"] for row in rows if row["kind"] == "together"}
    assert set(together) == set(map(str, POLICIES.operators))
    first = found["over_first"]
    assert (first["reference"], first["operators"], first["pairs"]) == ("markov", 2, 4)
    for name, line in first["strategies"].items():
        logs = [np.log(s[f"{name}/{i}"][0] / s[f"markov/{i}"][0]) for s in together.values() for i in POLICIES.seeds]
        assert line["ratio"] == pytest.approx(np.exp(np.mean(logs)))
        assert line["low"] <= line["ratio"] <= line["high"]
    text = stage("adaptive", found)
    assert "markov/1" in text and "Over markov: 4 pairs on 2 operators" in text
    assert adaptive.digest(context) == found  # what a stage that was killed had written says the same


@pytest.mark.thorough
def test_a_stage_goes_on_and_a_cut_search_is_no_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt repeats nothing; searches that the time cut short are named and not compared."""
    pytest.importorskip("torch")
    begun: list[str] = []
    given = adaptive.get_strategy

    def until_two_are_done(name: str, **parameters: object) -> Strategy:
        begun.append(name)
        if len(begun) > 2:
            raise SystemExit("the process dies")
        return given(name, **parameters)

    monkeypatch.setattr(adaptive, "get_strategy", until_two_are_done)
    with pytest.raises(SystemExit):
        adaptive.run(at(tmp_path))
    before = [row["key"] for row in read_rows(tmp_path / adaptive.FILE)]
    monkeypatch.setattr(adaptive, "get_strategy", given)
    found = adaptive.run(at(tmp_path))
    keys = [row["key"] for row in read_rows(tmp_path / adaptive.FILE)]
    assert len(before) == 8 and keys[:8] == before and len(set(keys)) == len(keys)
    assert found["over_first"]["pairs"] == 4
    path = tmp_path / adaptive.FILE
    rows = read_rows(path)
    cut = next(row for row in rows if row["kind"] == "search" and row["label"] == "random/1")
    cut["cut"] = True
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = standings(at(tmp_path).rows(adaptive.FILE), list(POLICIES.strategies))
    assert found["cut_short"] == [f"random/1: {cut['operator']}"] and found["over_first"]["pairs"] == 3
    monkeypatch.setattr(Context, "left", property(lambda self: 0.0))
    assert adaptive.run(at(tmp_path, "run2"))["trials"] == 0


def test_learned_searches_ask_in_turn_and_measure_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share one model, which would mix up the questions of two threads."""
    asking: list[str] = []
    asked: list[int] = []
    measuring = threading.Barrier(2, timeout=60.0)

    def ask() -> None:
        asking.append("")
        time.sleep(0.02)
        asked.append(len(asking))
        asking.pop()

    def watched(strategy: Strategy, session: Session, seed: int) -> None:
        if isinstance(strategy, Learned):
            ask()
            session.measure([session.graph.initial()])
            ask()

    def trial(self: InstantDevice, built: Built | Measurement, hw: Hardware) -> Measurement:
        measuring.wait()  # the other one has to come
        return Measurement(Status.OK, (1e-6,) * 5)

    monkeypatch.setattr(adaptive, "search", watched)
    monkeypatch.setattr(InstantDevice, "trial", trial)
    found = adaptive.run(at(tmp_path))
    searches = 2 * len(POLICIES.operators) * len(POLICIES.seeds)
    assert found["trials"] == searches and asked == [1] * 2 * searches
