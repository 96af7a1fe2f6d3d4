"""A multirun is one comparison: the same table as one command with all the lists; tuned values are of the train part."""

from __future__ import annotations

import json
import math
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf
from rich.console import Console

from agents.cli.arguments import compose
from agents.runs.jobs import Jobs
from agents.runs.settings import ROOT, settings_of
from experiments.comparison import compare as command
from experiments.comparison.compare import compare
from experiments.comparison.summary import score
from experiments.tuning import tune_budgets
from experiments.tuning.settings import distinct
from gensor_gym import operators

COMMON = [
    "operator=[gemm(m=24, n=20, k=28),gemv(m=20, k=12)]", "backend=analytic", "hardware=h200", "budget.trials=30",
    "wandb.mode=disabled", "figures=false",
]  # fmt: skip
SWEPT = ["strategy=[random_walk],[roller],[random]", "seed=0,1"]
LISTS = ["strategy=[random_walk,roller,random]", "seed=[0,1]"]
TIMINGS = {"date", "config", "construction_s", "elapsed_s"}


def without_timings(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_timings(one) for name, one in value.items() if name not in TIMINGS}
    return [without_timings(one) for one in value] if isinstance(value, list) else value


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
    return sorted((without_timings(row) for row in rows), key=lambda row: (row["job"], row["trial"]))


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One command with the lists."""
    folder = tmp_path_factory.mktemp("single")
    settings = settings_of(compose([*COMMON, *LISTS, f"output={folder}"]))
    jobs = Jobs(settings.backend, settings.store, settings.output)
    compare(settings, jobs, Console(quiet=True))
    jobs.close()
    return folder


def multirun(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", "-m", *words])
    command.main()


@pytest.mark.thorough
def test_a_multirun_ends_in_the_table_of_one_command(
    single: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = [*COMMON, *SWEPT, f"output={tmp_path / 'out'}", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    multirun(monkeypatch, *sweep)
    said = capsys.readouterr().out
    tasks, _, whole = said.partition("6 tasks together:")
    assert tasks.count("Results are in") == 6 and "construction" not in tasks and " after " not in tasks
    assert whole.count("construction") == 3 and "done before" not in said, "a table for each operator, and one for both"
    assert without_timings(summary_of(tmp_path / "out")) == without_timings(summary_of(single))
    assert rows_of(tmp_path / "out") == rows_of(single), "with a common output, too"
    for folder in (tmp_path / "out" / "tasks").iterdir():
        (again,) = (yaml.safe_load((folder / ".hydra" / "overrides.yaml").read_text()),)
        assert settings_of(compose(again)).config == yaml.safe_load((folder / ".hydra" / "config.yaml").read_text())
    multirun(monkeypatch, *sweep)
    assert "Everything was done before" in capsys.readouterr().out.split("6 tasks together:")[1]


@pytest.mark.thorough
def test_settings_that_differ_have_names_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep over values of one strategy: no row takes the place of another."""
    words = [*COMMON[:-3], *COMMON[-2:], "strategy=random_walk", "budget.trials=5,9", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    multirun(monkeypatch, *words, f"output={tmp_path / 'out'}")
    rows = summary_of(tmp_path / "out")["rows"]
    assert [row["strategy"] for row in rows] == 2 * ["random_walk[trials=5]", "random_walk[trials=9]"]
    assert [row["trials"] for row in rows] == [5, 9, 5, 9]


def test_machines_have_tables_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [word for word in COMMON if not word.startswith("hardware")]
    multirun(monkeypatch, *words, "strategy=random_walk", "hardware=h200,a100", f"hydra.sweep.dir={tmp_path}/${{hydra.job.name}}")
    found = {path.parent.name: json.loads(path.read_text())["hardware"] for path in (tmp_path / "compare").glob("*/summary.json")}
    assert found == {"h200_analytic": "h200", "a100_analytic": "a100"}


def test_the_number_for_a_sweeper(single: Path) -> None:
    summary = summary_of(single)
    ratios = [row["retimed"]["median"] / summary["operators"][row["operator"]]["roofline_s"] for row in summary["rows"]]
    assert score(summary) == pytest.approx(math.prod(ratios) ** (1 / len(ratios))) and score(summary) > 1
    summary["rows"][0]["retimed"] = None
    assert score(summary) == math.inf


@pytest.mark.thorough
def test_optuna_makes_it_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tune_with_optuna.py", str(tmp_path), "3"])
    runpy.run_path(str(ROOT / "docs" / "examples" / "tune_with_optuna.py"), run_name="__main__")
    assert "best of 3 trials: batch=" in capsys.readouterr().out


def test_values_for_budgets_come_from_train_and_validation(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="train and validation only"):
        tune_budgets.tasks_of("test", 3)
    assert {operators.part_of(operators.parse(t)) for t in tune_budgets.tasks_of("validation", 5)} == {"validation"}
    scores = np.array([[3.0, 1.0], [1.0, 3.0], [2.0, 2.0]])
    assert tune_budgets.leading([{"a": 0}, {"a": 1}, {"a": 2}], scores, 1) == [{"a": 1}, {"a": 0}]


def test_more_settings_than_there_are_is_an_error() -> None:
    config = OmegaConf.create({"choices": {"walkers": [1, 2], "steps": [16, 16]}, "rungs": [{"settings": 3}]})
    with pytest.raises(ValueError, match="expected at most the 2 that"):
        distinct(config, np.random.default_rng(0))
