"""Studies: a grid of jobs that goes on where it broke off, on made-up and on recorded tasks, and its page."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agents.cli.arguments import compose
from agents.runs.journal import locked
from agents.runs.settings import settings_of
from agents.runs.sheets.sheet import Sheet
from experiments.studies.scores import EVALUATIONS, SECONDS, best_at, difference
from experiments.studies.search import scores as study_scores
from experiments.studies.search.scores import Truth
from experiments.studies.search.study import SearchStudy, at_seconds
from experiments.studies.study import LINES, PLAN, Plan, Study, evenly
from gensor_gym import ConstructionGraph, hardware, operators
from gensor_gym.hardware.described import RECORDINGS
from gensor_gym.measure.records.backend import open_recorded
from gensor_gym.measure.records.tables import read_table
from tests.support.coarse_figures import COARSE_FIGURES
from tests.support.in_process import one_after_the_other, search_here

pytestmark = COARSE_FIGURES

SHAPES = 'operator=[reduce_sum(m=16, k=65536),elementwise(name="exp", shape=(192, 128, 128))]'
SMALL = [
    "experiment=recorded", SHAPES, "strategy=[random_walk,local_search,exhaustive]", "seed=[0,1]", "budget.trials=12",
    "study.checkpoints=[4,12]", "study.resamples=50", "study.reference=random_walk", "study.workers=1",
]  # fmt: skip


def _study(folder: Path, *more: str) -> SearchStudy:
    return SearchStudy(compose([*SMALL, f"output={folder}", *more], name="study"))


def _run(study: SearchStudy) -> dict:
    return study(Console(quiet=True))[1]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[SearchStudy, dict]:
    study = _study(tmp_path_factory.mktemp("study") / "out")
    return study, _run(study)


def test_everything_is_written(done: tuple[SearchStudy, dict]) -> None:
    study, summary = done
    folder = study.settings.output
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert len(rows) == 3 * 2 * 2 * 12
    values = [json.loads(line) for line in (folder / "study_values.jsonl").read_text().splitlines()]
    assert len(values) == 3 * 2 * 2
    assert all(value["log_ratio"] == [0.0, 0.0] for value in values if value["strategy"] == "random_walk")
    assert all(0.0 <= value["regret"][1] <= value["regret"][0] for value in values)
    for name in ("regret_by_trials", "regret_by_seconds", "profiles", "improvement"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "summary.md").read_text()
    assert "reduce_sum" in text and "drawing at random" in text and "Against random_walk" in text
    lines = summary["strategies"]
    assert set(lines) == {"random_walk", "local_search", "exhaustive"} and summary["broken"] == {}
    assert all(line["trials"] == 12 and line["overhead_s"] > 0 for line in lines.values())
    assert lines["random_walk"]["evaluations"] == 0 < lines["exhaustive"]["evaluations"]
    for value in lines["exhaustive"]["over"]["random_walk"]:
        assert value["low"] <= value["mean"] <= value["high"] and value["p"] <= value["p_holm"] <= 1.0


def test_what_is_done_is_not_done_again(done: tuple[SearchStudy, dict], monkeypatch: pytest.MonkeyPatch) -> None:
    study, summary = done
    before = (study.settings.output / "results.jsonl").read_bytes()
    victim = study.settings.jobs[3]
    (study.settings.output / "jobs" / f"{victim.key}.json").unlink()  # as if the run had been stopped before its end
    searched = []

    def watched(work: Callable, jobs: list, *rest: Any) -> object:
        searched.extend(jobs)
        return one_after_the_other(work, jobs, *rest)

    search_here(monkeypatch)
    monkeypatch.setattr("agents.runs.pool.side_by_side", watched)
    again = _run(study)
    assert searched == [victim]
    assert (study.settings.output / "results.jsonl").read_bytes() == before  # the same trials came out in another process
    assert again["strategies"]["exhaustive"]["regret"] == summary["strategies"]["exhaustive"]["regret"]
    assert again["strategies"]["random_walk"]["over"] == summary["strategies"]["random_walk"]["over"]


def test_a_strategy_that_cannot_run_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search_here(monkeypatch)
    more = ("strategy=[random_walk,ppo]", "strategies.ppo.checkpoint=/nowhere", "figures=false")
    summary = _run(_study(tmp_path, *more))
    assert list(summary["strategies"]) == ["random_walk"]
    assert "experiments train" in summary["broken"]["ppo"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("backend=emulated hardware=h200", "recorded tables"),
        ("budget.trials=null", "budget.trials"),
        ("study.reference=nobody", "study.reference"),
        ("study.checkpoints=[0]", "study.checkpoints"),
        ("study.workers=0", "study.workers"),
    ],
)
def test_a_bad_plan_is_refused(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _study(tmp_path, *override.split())


def test_truth_of_a_recorded_task() -> None:
    hw, op = hardware.get("zen5_1c"), operators.parse("reduce_sum(m=16, k=65536)")
    backend = open_recorded("recorded", hw)
    truth = Truth(op, hw, "compact", backend)
    assert len(truth.regrets) == 168
    assert truth.random[-1] == 0.0 and (np.diff(truth.random) <= 1e-12).all()
    assert truth.curve([], 3).tolist() == [truth.worst] * 3
    with pytest.raises(ValueError, match="does not hold all"):
        Truth(op, hw, "extended", backend)


def test_uniform_draws_meet_the_zero_line() -> None:
    """The mean over many random orders of the kernels is the expectation."""
    hw, op = hardware.get("zen5_1c"), operators.parse("reduce_sum(m=16, k=65536)")
    backend = open_recorded("recorded", hw)
    truth, graph = Truth(op, hw, "compact", backend), ConstructionGraph(op, hw, "compact")
    first: dict[str, str] = {}
    for batch in graph.enumerate():
        for schedule in map(graph.schedule, batch):
            first.setdefault(backend.digest(op, schedule, hw), str(schedule))
    texts, rng = list(first.values()), np.random.default_rng(0)
    curves = np.array([truth.curve([texts[i] for i in rng.permutation(len(texts))[:32]], 32) for _ in range(600)])
    error = curves.std(axis=0) / math.sqrt(len(curves))
    assert (np.abs(curves.mean(axis=0) - truth.chance(32)) <= 4 * error + 1e-12).all()


@pytest.mark.thorough
def test_all_shipped_tables_are_in_the_list() -> None:
    shipped: dict[str, set[str]] = {"compact": set(), "medium": set()}
    for path in (RECORDINGS / "zen5_1c").glob("*.parquet"):
        about = read_table(path).about
        shipped[about["space"]].add(about["operator"])
    for space, chosen in (("compact", []), ("medium", ["operator=recorded_medium", "space=medium"])):
        for name in ("recorded", "recorded_small"):
            config = compose([f"experiment={name}", *chosen], name="study")
            assert config.space == space
            assert sorted(str(operators.resolve_one(text)) for text in config.operators) == sorted(shipped[space])


def test_variants_and_settings() -> None:
    study = SearchStudy(compose(["experiment=ablation", "strategies.markov.walkers=5"], name="study"))
    jobs = {job.strategy: job for job in study.settings.jobs}
    assert {job.of for job in jobs.values()} == {"markov"} and jobs["tree"].hyperparameters["backtracking"] is False
    assert jobs["markov"].hyperparameters["walkers"] == 5 and jobs["one_walker"].hyperparameters["walkers"] == 1
    assert all(job.hyperparameters["space"] == "compact" for job in jobs.values())
    assert set(study.hypotheses) == set(jobs) - {"markov"}
    assert all(said["direction"] in study_scores.DIRECTIONS for said in study.hypotheses.values())
    small = settings_of(compose(["experiment=recorded_small"], name="study"))
    assert small.jobs[0].budget.trials == 64


def test_hypotheses_are_judged_by_significance() -> None:
    def verdict(mean: float, p: float, direction: str, least: float = 0.001) -> str:
        line = {"over": {"all": [{"mean": mean, "p_holm": p, "p_least": least}]}}
        return study_scores._verdicts(line, "all", direction)[0]

    assert verdict(0.1, 0.01, "worse") == "as expected"
    assert verdict(-0.1, 0.01, "worse") == "the opposite"
    assert verdict(0.1, 0.2, "worse") == "not told apart"
    assert verdict(0.1, 0.01, "same") == "worse"
    assert verdict(0.1, 0.25, "worse", least=0.25) == "too few tasks"
    with pytest.raises(ValueError, match="direction|expected one of"):
        verdict(0.1, 0.01, "faster")


def test_regret_at_seconds() -> None:
    regret, elapsed = np.array([[[0.5, 0.2, 0.1]]]), np.array([[[1.0, 2.0, 4.0]]])
    curves = study_scores.Curves(regret, regret, elapsed, ())
    assert at_seconds(curves, np.array([0.5, 1.0, 3.0, 9.0])).tolist() == [[[0.5, 0.5, 0.2, 0.1]]]


SHEET = Sheet.of("t", ("name",), [("a",)])


@dataclass(frozen=True)
class Number:
    """A search for a square."""

    value: int

    @property
    def key(self) -> str:
        return f"{self.value:016d}"


def square(number: Number) -> dict[str, Any]:
    if number.value < 0:
        raise RuntimeError("broken off")
    return {"key": number.key, "square": number.value**2}


def plan_of(folder: Path, *numbers: int, figures: bool = True) -> Plan:
    return Plan({"output": str(folder), "numbers": numbers, "figures": figures, "processes": 1})


class Squares(Study[Plan, list[dict[str, Any]]]):
    """A study that takes no time."""

    @staticmethod
    def markdown(summary: dict[str, Any], figures: list[str]) -> str:
        return f"{summary['sum']} {figures}"

    @staticmethod
    def sheet(summary: dict[str, Any]) -> Sheet:
        return SHEET

    def run(self, console: Console) -> list[dict[str, Any]]:
        written = json.loads((self.plan.output / PLAN).read_text())
        assert written["output"] == str(self.plan.output), "the plan is there before anything is run"
        with pytest.raises(ValueError, match="another process is writing to"):
            locked(self.plan.output)
        return self.lines([Number(value) for value in self.plan.config["numbers"]], console, square)

    def summarise(self, found: list[dict[str, Any]]) -> dict[str, Any]:
        return {"sum": sum(row["square"] for row in found)}

    def draw(self, found: list[dict[str, Any]], summary: dict[str, Any]) -> list[str]:
        return ["squares.png"]


@pytest.mark.thorough
def test_a_study_goes_on_where_it_broke_off_and_lets_its_folder_go(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="broken off"):
        Squares(plan_of(tmp_path, 2, -1))(Console(quiet=True))
    assert [json.loads(line)["square"] for line in (tmp_path / LINES).read_text().splitlines()] == [4]
    said = io.StringIO()
    found, summary = Squares(plan_of(tmp_path, 3, 2))(Console(file=said))
    assert [row["square"] for row in found] == [9, 4] and summary == {"sum": 13}
    assert "1 of 2 searches were done before" in said.getvalue()
    assert json.loads((tmp_path / "summary.json").read_text()) == {"sum": 13, "config": json.loads((tmp_path / PLAN).read_text())}
    assert (tmp_path / "summary.md").read_text() == "13 ['squares.png']"
    Squares(plan_of(tmp_path, 2, figures=False))(Console(quiet=True))
    assert (tmp_path / "summary.md").read_text() == "4 []"
    locked(tmp_path).close()


def test_a_second_writer_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ValueError, match="another process is writing to"):
        Squares(plan_of(tmp_path, 2))(Console(quiet=True))
    assert not (tmp_path / PLAN).exists()


@pytest.mark.thorough
def test_lines_of_a_grid_lie_by_name_task_and_seed(tmp_path: Path) -> None:
    study = Squares(Plan({"output": str(tmp_path), "seeds": [3, 1, 3], "processes": 1}))

    def make(name: str, task: int, seed: int) -> Number:
        return Number(int(name) * 100 + task * 10 + seed)

    found = study.grid(make, ["1", "2"], [0, 5], Console(quiet=True), square)
    assert {name: [[line["square"] for line in row] for row in of] for name, of in found.items()} == {
        "1": [[103**2, 101**2], [153**2, 151**2]], "2": [[203**2, 201**2], [253**2, 251**2]]
    }  # fmt: skip


def test_the_best_so_far_is_read_off_a_curve_by_either_cost() -> None:
    """At first the unscheduled program, which a slower first program does not replace."""
    lines = np.empty((1, 1), dtype=object)
    lines[0, 0] = {"curve": [[1, 4, 9], [8.0, 3.0, 2.0], [0.1, 0.2, 0.9]]}
    assert best_at(lines, [5.0], [0, 1, 4, 8, 9], EVALUATIONS).tolist() == [[[5.0, 5.0, 3.0, 3.0, 2.0]]]
    assert best_at(lines, [5.0], np.array([[[0.2, 1.0]]]), SECONDS).tolist() == [[[3.0, 2.0]]]


def test_tasks_are_chosen_evenly() -> None:
    assert evenly("abcde", 3) == ("a", "c", "e") and evenly("abc", None) == ("a", "b", "c") and evenly("ab", 9) == ("a", "b")


def test_a_difference_turns_with_its_interval() -> None:
    value = {"mean": 0.02, "low": -0.01, "high": 0.05, "p_holm": 0.5}
    assert difference(value) == "+2.0 % [-1.0, 5.0], p 0.50" and difference(value, turned=True) == "-2.0 % [-5.0, 1.0], p 0.50"
