"""What all studies have in common: a plan written first, what is missing of it made, scores, and a page with figures.

A study of its own says what is run, how it is scored and shown; see the folders beside this file. Everything lies in one folder,
in which one process works at a time. A command that was stopped, however hard, goes on where it was when it is given again.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from omegaconf import DictConfig
from rich.console import Console

from experiments.commands.command import command
from experiments.common.anytime import run_search
from experiments.common.journal import Journal, locked, lying, read_rows
from experiments.common.lines import Keyed, run_missing
from experiments.common.results import write_summary, write_text
from experiments.sheets.sheet import Sheet

PLAN, LINES = "plan.json", "lines.jsonl"
"""What is to be done, written before anything is run; and a line for each search, written as soon as it is there. Those that
ship, packed, are not made again."""


class Plan(Protocol):
    """What a study is asked to do, checked and resolved."""

    @property
    def output(self) -> Path:
        """Folder of everything that is written."""

    @property
    def figures(self) -> bool:
        """Whether figures are drawn."""

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as it was given."""


class Report(Protocol):
    """The module that says what was found."""

    def markdown(self, summary: dict[str, Any], figures: list[str]) -> str:
        """A page."""

    def sheet(self, summary: dict[str, Any]) -> Sheet:
        """The most important table: shown at the end of a command, and written as summary.csv."""


Asked = TypeVar("Asked", bound=Plan)
Found = TypeVar("Found")


class Study(ABC, Generic[Asked, Found]):
    """Called, it does what its plan says. ValueError where another process writes to its folder."""

    report: Report

    def __init__(self, plan: Asked) -> None:
        """Nothing is looked at yet."""
        self.plan = plan

    @abstractmethod
    def run(self, console: Console) -> Found:
        """Make what is missing; everything there is then."""

    @abstractmethod
    def summarise(self, found: Found) -> dict[str, Any]:
        """Plain values, as summary.json has them beside the configuration."""

    @abstractmethod
    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Write the figures into the folder; names of the files."""

    def claim(self) -> closing[Any]:
        """The folder, for this process alone."""
        return closing(locked(self.plan.output))

    def lines(
        self, wanted: Sequence[Keyed], processes: int, console: Console, work: Callable[[Any], dict[str, Any]] = run_search
    ) -> list[dict[str, Any]]:
        """The lines of searches in their order; those that are not there are made by `work`, side by side."""
        path = self.plan.output / LINES
        shipped = {row["key"]: row for row in (read_rows(path) if lying(path) != path else [])}
        if all(search.key in shipped for search in wanted):
            return [shipped[search.key] for search in wanted]
        with Journal(path) as journal:
            return run_missing(wanted, journal, processes, console, work)

    def __call__(self, console: Console) -> tuple[Found, dict[str, Any]]:
        """Write the plan, run, score, write the page; what was found, and its summary."""
        with self.claim():
            write_text(self.plan.output / PLAN, json.dumps(self.plan.config, indent=1, default=str) + "\n")
            found = self.run(console)
            with console.status("summary and figures"):
                summary = self.summarise(found)
                names = self.draw(found, summary) if self.plan.figures else []
                write_summary(self.plan.output, {**summary, "config": self.plan.config}, self.report.markdown(summary, names))
                self.report.sheet(summary).write_csv(self.plan.output / "summary.csv")
        return found, summary


def study_command(name: str, make: Callable[[DictConfig], Study[Any, Any]]) -> Callable[[], None]:
    """The command of a study that `make` makes of conf/`name`.yaml."""

    @command(name, RuntimeError)
    def main(config: DictConfig, console: Console) -> Path:
        study = make(config)
        _, summary = study(console)
        study.report.sheet(summary).show(console)
        return Path(study.plan.output)

    return main
