"""What every study does: the plan comes first, nothing is made twice, one process writes."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.common.journal import locked
from experiments.sheets.sheet import Sheet
from experiments.studies.study import LINES, PLAN, Plan, Study

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
