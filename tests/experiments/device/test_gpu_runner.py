"""`make gpu` without a GPU: isolation of stages, the time budget, what survives, arguments, wheels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from agents.runs.journal import read_rows
from agents.runs.settings import ROOT
from experiments.device import gpu, stages, table, wheels
from experiments.device.card import gpu_state
from experiments.device.context import Context, StageJournal
from experiments.device.report import write_summary
from experiments.device.runner import Outcome, Stage, run_stages
from experiments.device.stages.families import covering, features
from gensor_gym import hardware, operators
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.knobs import KNOBS

HW = hardware.get("h200")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(str(tmp_path / "out"), str(tmp_path / "scratch"), "run1", 100.0)


def fake(name: str, weight: float = 1.0, least: float = 0.1) -> Stage:
    return Stage(name, f"tests.support.gpu_stage_fakes:{name}", weight, least)


def run(stages: list[Stage], context: Context, budget: float) -> dict[str, Outcome]:
    """Outcomes by stage; a summary is written after each."""
    seen: list[int] = []

    def ended(outcomes: list[Outcome]) -> None:
        seen.append(len(outcomes))
        write_summary(context, {"gpu": {}}, stages, outcomes)

    outcomes = run_stages(stages, context, budget, ended)
    assert seen == list(range(1, len(stages) + 1))
    return {outcome.stage: outcome for outcome in outcomes}


@pytest.mark.thorough
def test_stages_do_not_take_one_another_down(context: Context) -> None:
    """An error and a death are recorded, with what was done before; what died is left out and the rest is done."""
    found = run([fake("raises"), fake("dies_at_one"), fake("good")], context, 60.0)
    assert found["raises"].status == "failed"
    assert "attempt of run1 goes wrong" in found["raises"].error
    assert found["raises"].attempts == 3
    assert found["dies_at_one"].status == "done"
    assert found["dies_at_one"].attempts == 2
    assert found["dies_at_one"].result == {"rows": ["0", "1", "3", "4"]}
    assert found["good"].result["hardware"] == "h200"
    summary = json.loads(context.path("summary.json").read_text())
    assert summary["complete"] is True
    assert [stage["status"] for stage in summary["stages"].values()] == ["failed", "done", "done"]
    text = context.path("summary.md").read_text()
    assert "goes wrong" in text
    assert "| dies_at_one | done |" in text


@pytest.mark.thorough
def test_a_hanging_stage_is_killed_and_its_rows_count(context: Context) -> None:
    """Within the budget; the stages after it run, and its summary is made of what it had written."""
    begin = time.monotonic()
    found = run([fake("hangs"), fake("waits"), fake("good")], context, 14.0)
    assert time.monotonic() - begin < 14.5
    assert found["hangs"].status == "timeout"
    assert 1.0 < found["hangs"].seconds < 5.0
    assert found["waits"].status == found["good"].status == "done"
    assert found["waits"].result["done"] > 3
    summary = json.loads(context.path("summary.json").read_text())
    assert summary["stages"]["hangs"]["result"] == {"rows": ["a", "b"]}
    pid = int(context.path("pid").read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"  # its child died with it


@pytest.mark.thorough
def test_time_goes_to_those_that_are_left(context: Context) -> None:
    """Time that a stage does not use is the later ones'; a stage with too little left is skipped and says so."""
    found = run([fake("good", weight=8.0), fake("waits", weight=1.0), fake("good", 1.0, least=100.0)], context, 8.0)
    assert found["waits"].seconds > 0.9  # of 8 - 4 seconds a fixed tenth would be 0.4
    skipped = found["good"]
    assert (skipped.status, skipped.attempts) == ("skipped", 0)
    assert "it needs 100" in skipped.error


def test_journal_bears_half_lines_and_other_runs(tmp_path: Path) -> None:
    path, begun = tmp_path / "rows.jsonl", tmp_path / "begun"
    StageJournal(path, "old", begun).put("a", {"value": 1})
    with path.open("a") as file:
        file.write('{"key": "b", "val')
    journal = StageJournal(path, "new", begun)
    assert journal.pending("a")
    journal.begin("c")
    journal.put("d", {"value": float("inf")})
    journal.close()
    again = StageJournal(path, "new", begun)
    assert again.crashed == {"c"}
    assert not again.pending("c")
    assert [row["key"] for row in read_rows(path)] == ["a", "d"]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("budget", "expected key=value with a key of plan, stages, out"),
        ("speed=3", "expected key=value"),
        ("stages=correctness,nothing", r"stages \['nothing'\]: expected some of first_contact"),
        ("deadline_s=fast", "deadline_s=fast: expected a number"),
        ("deadline_s=-1", "above 0"),
        ("plan=leese", "plan=leese: expected archive or lease"),
    ],
)
def test_bad_arguments_are_named(argument: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        gpu.read_arguments([argument])


def test_arguments() -> None:
    found = gpu.read_arguments(["deadline_s=60", "stages=[correctness,fused]", "out=x/y", "seed=3"])
    assert found == gpu.Settings("lease", ("correctness", "fused"), "x/y", 60.0, "auto", 3)
    assert gpu.read_arguments(["stages="]).stages == ()


def test_help_lists_the_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"\n    {name}=" in said for name in vars(gpu.Settings()))


def test_what_was_compiled_beforehand_decides_the_stages() -> None:
    with_archive, without = stages.by_default(True), stages.by_default(False)
    assert with_archive[:4] == stages.OF_ARCHIVE and without[:2] == stages.WITHOUT_ARCHIVE
    assert with_archive[4:] == without[2:]
    weights = {stage.name: stage.weight for stage in stages.STAGES}
    assert all(sum(weights[name] for name in names) <= gpu.Settings().deadline_s for names in (with_archive, without))


def test_without_a_device_it_says_what_is_missing(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu, "gpu_state", dict)
    monkeypatch.setattr(gpu, "use_wheels", lambda: None)
    monkeypatch.setattr(wheels, "_found", lambda name: name not in ("cupy", "gymnasium"))
    out = tmp_path / "none"
    assert gpu.main([f"out={out}"]) == 2
    said = capsys.readouterr().err
    for words in ("nvidia-smi", "Python modules gymnasium: see experiments/gpu_wheels.txt", "Python modules cupy"):
        assert words in said
    assert not out.exists()


def test_wheels_are_unpacked_behind_what_the_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "first")
    assert wheels.use_wheels(tmp_path) is None
    with zipfile.ZipFile(tmp_path / "brought_along-1-py3-none-any.whl", "w") as archive:
        archive.writestr("brought_along/__init__.py", "VALUE = 7\n")
        archive.writestr("json.py", "raise ImportError('shadowed')\n")
    assert wheels.missing(["brought_along", "brought_along.sub", "json"]) == ["brought_along", "brought_along.sub"]
    site = wheels.use_wheels(tmp_path)
    assert wheels.use_wheels(tmp_path) == site
    assert sys.path.count(str(site)) == 1
    assert os.environ["PYTHONPATH"] == f"first{os.pathsep}{site}"
    assert __import__("brought_along").VALUE == 7
    assert wheels.missing(["brought_along", "json"]) == []


def test_the_list_of_wheels_is_pinned() -> None:
    lines = (ROOT / "experiments" / "gpu_wheels.txt").read_text().splitlines()
    names = {line.split("==")[0] for line in lines if line and not line.startswith("#")}
    assert {"gymnasium", "farama-notifications", "stable-baselines3", "sb3-contrib", "omegaconf"} <= names
    constraints = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in pinned if line.lower() not in constraints] == []


def test_what_is_timed_is_sound() -> None:
    found = table.read_operators()
    assert len(found) >= 16
    assert {op.name for op in found.values()} == {op.name for op in operators.resolve("smoke")}


@pytest.mark.thorough
def test_families_use_every_value_of_every_knob() -> None:
    """Between matrix products on both kinds of cores and a long reduction, whatever can be generated is."""
    seen: set[str] = set()
    products = ("gemm(m=257, n=129, k=65)", "gemm(m=512, n=384, k=1000)", "gemm(m=512, n=384, k=1024, dtype='bfloat16')")
    for text in (*products, "reduce_sum(m=100, k=4097)"):
        found = list(covering(operators.parse(text), HW, 0, 30))
        assert len({schedule for schedule, _ in found}) == len(found) == 30
        assert all(isinstance(made, Kernel) for _, made in found)
        seen |= set().union(*(features(schedule, made) for schedule, made in found))
    expected = {f"{k.name}={v}" for k in KNOBS if k.kind == "gpu" for v in k.available}
    assert expected <= seen
    assert {"shared=none", "shared=some", "shared=opt-in", "launches=1", "launches=2", "odd threads=True"} <= seen
    assert {"shares, cluster=1", "shares, cluster=2"} <= seen


LACKING = """
import runpy, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "gymnasium" and "experiments.device.wheels" not in sys.modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Lacking())
sys.argv = ["gpu", "stages="]
runpy.run_module("experiments.gpu", run_name="__main__", alter_sys=True)
"""
"""The command, where gymnasium is there only once wheels have been looked for."""


def test_wheels_come_before_the_command_line() -> None:
    """`python -m experiments.gpu` ended with "No module named 'gymnasium'": plugins were loaded before wheels were unpacked."""
    if gpu_state():
        pytest.skip("a GPU is there")
    done = subprocess.run([sys.executable, "-c", LACKING], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert "needs a machine with an NVIDIA GPU" in done.stderr
