"""Compare: complete on tiny shapes, continues after any death, runs nothing twice."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from agents.baselines.random_walk import RandomWalk
from agents.cli.arguments import CONF, compose
from agents.runs.jobs import Jobs, Outcome, unguided
from agents.runs.results import FIELDS, Results
from agents.runs.settings import Settings, settings_of
from experiments.common.statistics import against
from experiments.comparison import compare as command
from experiments.comparison.compare import compare
from experiments.comparison.table import show
from gensor_gym.construction import ConstructionGraph
from gensor_gym.fingerprint import fingerprint
from gensor_gym.measure.records.store import Store
from gensor_gym.measure.session import Session, TraceRow
from tests.support.coarse_figures import COARSE_FIGURES

pytestmark = COARSE_FIGURES
SHAPES = "operator=[gemm(m=24, n=20, k=28),gemv(m=20, k=12)]"
TINY = ["strategy=random_walk", SHAPES, "backend=analytic", "hardware=h200", "budget.trials=5", "wandb.mode=disabled"]
WITH_PPO = [*TINY[1:], "strategy=[random_walk,ppo]", "strategies.ppo.checkpoint=/nowhere", "seed=[0,1]"]
FIGURES = ("best_by_trials.png", "best_by_seconds.png", "speedup.png")


def _compare(settings: Settings) -> dict:
    return compare(settings, Jobs(settings.backend, settings.store, settings.output), Console(quiet=True))


def _rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def model_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, dict]:
    settings = settings_of(compose([*WITH_PPO, f"output={tmp_path_factory.mktemp('model') / 'out'}"]))
    return settings, _compare(settings)


def test_results_have_their_schema(model_run: tuple[Settings, dict]) -> None:
    settings, _ = model_run
    rows = _rows(settings.output)
    assert len(rows) == 2 * 2 * 5  # operators, seeds, trials; ppo has no policy
    for row in rows:
        assert tuple(row) == FIELDS
        assert row["fingerprint"] == fingerprint(ConstructionGraph(row["operator"], "h200", "extended"))
        assert (row["seconds"] is None) == (row["status"] != "OK")
    assert len({(row["job"], row["trial"]) for row in rows}) == len(rows)


def test_what_a_search_ended_with_is_no_markup(tmp_path: Path) -> None:
    job, said = settings_of(compose([*TINY, f"output={tmp_path}"])).jobs[0], io.StringIO()
    Console(file=said, width=200).print(command._line(job, Outcome("NOT_RUN", "no policy at [/nowhere]")))
    assert said.getvalue().endswith("no policy at [/nowhere]\n")


def test_a_missing_policy_is_a_row_and_the_run_goes_on(model_run: tuple[Settings, dict]) -> None:
    _, summary = model_run
    ppo = [row for row in summary["rows"] if row["strategy"] == "ppo"]
    assert {row["status"] for row in ppo} == {"NOT_RUN"}
    assert all("experiments train" in row["error"] for row in ppo)
    walk = [row for row in summary["rows"] if row["strategy"] == "random_walk"]
    assert all(row["status"] == "DONE" and row["retimed"]["median"] > 0 for row in walk)
    assert all(row["over_torch"] is None for row in walk)  # nothing was timed
    assert min(row["gap_to_best"]["median"] for row in walk) == 1.0


def test_strategies_are_paired_by_task_and_seed(tmp_path: Path) -> None:
    words = [*TINY[1:], "strategy=[random_walk,roller,ppo]", "strategies.ppo.checkpoint=/nowhere", "seed=[0,1]"]
    summary = _compare(settings_of(compose([*words, f"output={tmp_path}", "figures=false"])))
    beside = summary["paired"]
    assert (beside["reference"], beside["tasks"], beside["seeds"]) == ("random_walk", 2, 2)
    assert set(beside["strategies"]) == {"roller"}  # ppo has no policy
    gaps = {row["label"] + row["operator"]: math.log(row["gap_to_best"]["median"]) for row in summary["rows"] if row["retimed"]}
    pairs = [(f"roller/{seed}{op}", f"random_walk/{seed}{op}") for op in summary["operators"] for seed in (0, 1)]
    line = beside["strategies"]["roller"]
    assert line["mean"] == pytest.approx(sum(gaps[a] - gaps[b] for a, b in pairs) / 4)
    assert line["low"] <= line["mean"] <= line["high"]
    assert f"| roller | {math.exp(line['mean']):.3f} [" in (tmp_path / "summary.md").read_text()


def test_one_task_or_one_strategy_is_not_paired(tmp_path: Path) -> None:
    one = settings_of(compose([*TINY[1:], "strategy=[random_walk]", f"output={tmp_path}", "figures=false"]))
    assert _compare(one)["paired"] is None


def test_a_budget_that_ends_before_anything_is_learned_is_said(tmp_path: Path) -> None:
    words = ["strategy=[ansor,ansor_small,random_walk]", "budget.trials=16", f"output={tmp_path}"]
    said = {job.strategy: unguided(job) for job in settings_of(compose([*TINY[1:-2], *words])).jobs}
    assert said["ansor"] == "ansor: measurements guide it after 100 trials, and budget.trials=16 ends before"
    assert not said["ansor_small"] and not said["random_walk"]


def test_differences_by_hand() -> None:
    score = np.array([[[3.0], [5.0]], [[1.0], [1.0]]])
    found = against({"worse": score + 1, "same": score, "mixed": score + [[[2.0]], [[-1.0]]]}, score, resamples=200)
    assert [found[name][0]["mean"] for name in found] == [1.0, 0.0, 0.5]
    assert (found["worse"][0]["low"], found["worse"][0]["high"]) == (1.0, 1.0)
    assert found["mixed"][0]["low"] < 0 < found["mixed"][0]["high"]
    # two tasks: four combinations of signs, of which two are as far from zero as (1, 1); Holm multiplies by three
    assert found["worse"][0]["p"] == 0.5 and found["worse"][0]["p_holm"] == found["worse"][0]["p_least"] == 1.0
    assert found["same"][0]["improves"] == pytest.approx((0.5 + 0.5) / 2)


def test_a_strategy_that_breaks_is_a_row_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RandomWalk, session: Session, rng: object) -> None:
        session.measure([session.graph.initial()])
        raise ArithmeticError("first line\nsecond line")

    settings = settings_of(compose([*TINY, "strategy=[random_walk,roller]", f"output={tmp_path}", "figures=false"][1:]))
    with monkeypatch.context() as patch:
        patch.setattr(RandomWalk, "search", broken)
        rows = _compare(settings)["rows"]
    assert [(row["status"], row["trials"]) for row in rows if row["strategy"] == "random_walk"] == [("FAILED", 1)] * 2
    assert rows[0]["error"].startswith("ArithmeticError: first line (more in ")
    assert all(row["status"] == "DONE" for row in rows if row["strategy"] == "roller")
    walks = [row for row in _compare(settings)["rows"] if row["strategy"] == "random_walk"]
    assert [(row["status"], row["trials"]) for row in walks] == [("DONE", 5), ("DONE", 5)]


def test_summary_and_figures_are_written(model_run: tuple[Settings, dict]) -> None:
    settings, summary = model_run
    text = (settings.output / "summary.md").read_text()
    assert "gemv(m=20, k=12)" in text and "NOT_RUN" in text and summary["fingerprint"] in text
    assert json.loads((settings.output / "summary.json").read_text())["rows"] == summary["rows"]
    for name in FIGURES:
        assert (settings.output / name).read_bytes().startswith(b"\x89PNG")
    console = Console(record=True, width=200, file=io.StringIO())
    show(console, summary)
    assert "random_walk/1" in console.export_text()


def test_a_verdict_keeps_its_interval_on_a_narrow_screen() -> None:
    """And what the gap to the best is stands below."""
    times, ratio = {"median": 1.2e-3, "low": 1.1e-3, "high": 1.3e-3}, {"median": 1.25, "low": 1.21, "high": 1.32}
    row = {
        "operator": "op", "label": "model_descent_ext", "strategy": "model_descent_ext", "retimed": times, "over_torch": ratio,
        "verdict": "FASTER", "gap_to_best": dict.fromkeys(("median", "low", "high"), 1.0), "construction_s": 1.5,
        "evaluations": 1234, "statuses": {"OK": 14, "WRONG_ANSWER": 2}, "training_s": None, "error": "", "status": "DONE",
    }  # fmt: skip
    line = {
        **row, "jobs": 1, "timed": 1, "over_torch": 1.25, "verdicts": {"FASTER": 1}, "gap_to_best": 1.0, "trials": 16,
    }  # fmt: skip
    facts = {"torch": times, "torch_before": None, "dropped": {}, "processes": 3, "busy": 0.0}
    summary = {"rows": [row], "strategies": [line], "operators": {"op": facts}, "model_only": False}
    console = Console(record=True, width=80, force_terminal=True, file=io.StringIO())
    show(console, summary)
    said = console.export_text()
    assert "1.25x [1.21, 1.32] FASTER" in said and max(map(len, said.splitlines())) <= 80
    assert "Gap to best: the median of a winner" in said.partition("all operators")[2]


def test_the_same_command_does_nothing_once_it_is_done(tmp_path: Path) -> None:
    settings = settings_of(compose([*TINY, f"output={tmp_path}"]))
    summary = _compare(settings)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    assert _compare(settings)["date"] == summary["date"]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")} == before


@pytest.mark.thorough
def test_other_hyperparameters_take_the_place_of_the_old_rows(tmp_path: Path) -> None:
    settings = settings_of(compose([*TINY, f"output={tmp_path}"]))
    _compare(settings)
    other = [*TINY, "strategies.random_walk.batch=2", f"output={tmp_path}"]
    _compare(settings_of(compose(other)))
    rows = _rows(tmp_path)
    assert len(rows) == 10
    assert {row["job"] for row in rows}.isdisjoint({job.key for job in settings.jobs})


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path) -> None:
    settings = settings_of(compose([*TINY, f"output={tmp_path}"]))
    held = Jobs(settings.backend, settings.store, settings.output)
    with pytest.raises(ValueError, match="another process"):
        Jobs(settings.backend, settings.store, settings.output)
    assert held.results.rows(settings.jobs[0]) == []


def test_results_keep_what_is_there_and_replace_what_changed(tmp_path: Path) -> None:
    job = settings_of(compose([*TINY, f"output={tmp_path}"])).jobs[0]
    path = tmp_path / "results.jsonl"
    results = Results(path)
    for trial in range(3):
        results.put(job, TraceRow(trial, 0.1, f"s{trial}", 1.0, "OK", 0))
    with path.open("a") as file:
        file.write('{"operator": "torn')  # what a kill in the middle of a write could leave
    results.close()
    again = Results(path)
    before = path.read_text()
    again.put(job, TraceRow(1, 9.9, "s1", 2.0, "OK", 0))
    assert path.read_text() == before  # the acknowledged row stays
    again.put(job, TraceRow(1, 9.9, "s1", float("inf"), "TIMEOUT", 0))
    assert [(row["trial"], row["status"], row["seconds"]) for row in _rows(tmp_path)] == [
        (0, "OK", 1.0), (1, "TIMEOUT", None),
    ]  # fmt: skip


def test_results_of_another_fingerprint_are_refused(tmp_path: Path) -> None:
    job = settings_of(compose([*TINY, f"output={tmp_path}"])).jobs[0]
    Results(tmp_path / "results.jsonl").put(job, TraceRow(0, 0.1, "s", 1.0, "OK", 0))
    text = (tmp_path / "results.jsonl").read_text()
    (tmp_path / "results.jsonl").write_text(text.replace(job.fingerprint, "0" * 16))
    with pytest.raises(ValueError, match="do not compare"):
        Results(tmp_path / "results.jsonl").check(job)


REAL = [
    "strategy=random_walk", "operator=gemm(m=24, n=20, k=28)", "budget.trials=6", "strategies.random_walk.batch=2",
    "rounds=3", "wandb.mode=disabled", "figures=false",
]  # fmt: skip


def _words(tmp_path: Path) -> list[str]:
    return [*REAL, f"output={tmp_path / 'out'}", f"store={tmp_path / 'db'}"]


def given(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """The command, in this process."""
    monkeypatch.setattr(sys, "argv", ["compare", *words])
    command.main()


@pytest.mark.thorough
def test_killed_in_the_middle_then_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No acknowledged trial is timed again and none is lost; then real kernels are compared with torch."""
    results = tmp_path / "out" / "results.jsonl"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-m", "experiments.compare", *_words(tmp_path)], cwd=CONF.parent, **quiet)
    deadline = time.monotonic() + 100
    while (not results.exists() or results.read_text().count("\n") < 2) and time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = _rows(tmp_path / "out")
    stored = {record.schedule: record.created for record in Store(tmp_path / "db").records()}
    assert 2 <= len(before) < 6
    assert {row["schedule"] for row in before} <= set(stored)

    given(monkeypatch, *_words(tmp_path))
    after = _rows(tmp_path / "out")
    assert after[: len(before)] == before
    assert [row["trial"] for row in after] == list(range(6))
    later = {record.schedule: record.created for record in Store(tmp_path / "db").records()}
    assert {schedule: later[schedule] for schedule in stored} == stored
    assert len(later) == 6
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    row = summary["rows"][0]
    assert row["over_torch"]["low"] <= row["over_torch"]["median"] <= row["over_torch"]["high"]
    samples = json.loads(next((tmp_path / "out" / "comparisons").iterdir()).read_text())["samples"]
    assert {name: len(values) for name, values in samples.items()} == {"random_walk": 3, "torch": 3}


def test_a_comparison_without_any_search_does_not_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY[1:], "strategy=ppo", "strategies.ppo.checkpoint=/nowhere", "figures=false", f"output={tmp_path}"]
    with pytest.raises(SystemExit) as ended:
        given(monkeypatch, *words)
    assert ended.value.code == 1 and "No search was done" in capsys.readouterr().out and (tmp_path / "summary.md").exists()
