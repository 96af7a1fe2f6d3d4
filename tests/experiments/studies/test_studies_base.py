"""What every study does: the plan comes first, nothing is made twice, one process writes."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from agents.runs.journal import locked
from agents.runs.sheets.sheet import Sheet
from experiments.studies.scores import EVALUATIONS, SECONDS, best_at, difference
from experiments.studies.study import LINES, PLAN, Plan, Study, evenly

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
