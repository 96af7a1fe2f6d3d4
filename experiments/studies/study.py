"""The engine of all studies: a plan that is written first, searches that are kept, scores, and a page with figures.

A study defines its searches, its scores and its page. All its files are in one folder, in which only one process works at a time.
The same command resumes a stopped study.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from omegaconf import DictConfig
from rich.console import Console

from agents.cli.command import command
from agents.runs.anytime import run_search
from agents.runs.files import write_summary, write_text
from agents.runs.journal import Journal, locked, lying, read_rows
from agents.runs.lines import Keyed, run_missing
from agents.runs.sheets.sheet import Sheet

PLAN, LINES = "plan.json", "lines.jsonl"
"""Files of the plan and of the rows of finished searches. Rows that ship in packed form are not computed again."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """A checked configuration. Each study adds values that it computes from the configuration."""

    config: dict[str, Any]

    @property
    def output(self) -> Path:
        """Folder of all files."""
        return Path(self.config["output"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """Distinct seeds, in order."""
        return tuple(dict.fromkeys(self.config["seeds"]))

    @property
    def processes(self) -> int:
        """Number of searches that run at once."""
        return int(self.config["processes"])

    @property
    def resamples(self) -> int:
        """Number of resamples of a bootstrap."""
        return int(self.config["resamples"])


Asked = TypeVar("Asked", bound=Plan)
Found = TypeVar("Found")


class Study(ABC, Generic[Asked, Found]):
    """A study; calling it executes its plan. ValueError if another process uses its folder."""

    def __init__(self, plan: Asked) -> None:
        self.plan = plan

    @property
    def output(self) -> Path:
        """Folder of all files."""
        return self.plan.output

    @abstractmethod
    def run(self, console: Console) -> Found:
        """Run the missing searches; return the results of all searches."""

    @abstractmethod
    def summarise(self, found: Found) -> dict[str, Any]:
        """Content of summary.json, without the configuration."""

    @abstractmethod
    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Draw the figures; return their file names."""

    @staticmethod
    @abstractmethod
    def markdown(summary: dict[str, Any], figures: list[str]) -> str:
        """Markdown text of the page for a summary."""

    @staticmethod
    @abstractmethod
    def sheet(summary: dict[str, Any]) -> Sheet:
        """The main table, which is printed at the end of a command and written as summary.csv."""

    def claim(self) -> closing[Any]:
        """Lock the folder for this process; return the context that unlocks it."""
        return closing(locked(self.output))

    def lines(self, wanted: Sequence[Keyed], console: Console, work: Callable[[Any], Row] = run_search) -> list[Row]:
        """Rows of the searches `wanted`, in order; `work` runs the missing searches in parallel."""
        path = self.output / LINES
        shipped = {row["key"]: row for row in (read_rows(path) if lying(path) != path else ())}
        if all(search.key in shipped for search in wanted):  # the packed rows need not be unpacked
            return [shipped[search.key] for search in wanted]
        with Journal(path) as journal:
            return run_missing(wanted, journal, self.plan.processes, console, work)

    def grid(
        self, make: Callable[[str, Any, int], Keyed], names: Sequence[str], tasks: Sequence[Any], console: Console,
        work: Callable[[Any], Row] = run_search,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Name -> rows of the searches `make(name, task, seed)`, object [tasks, seeds]."""
        wanted = [make(name, task, seed) for name in names for task in tasks for seed in self.plan.seeds]
        rows = np.empty(len(wanted), dtype=object)
        rows[:] = self.lines(wanted, console, work)
        return dict(zip(names, rows.reshape(len(names), len(tasks), len(self.plan.seeds)), strict=True))

    def __call__(self, console: Console) -> tuple[Found, dict[str, Any]]:
        """Write the plan, run, score and write the page; return (results, summary)."""
        with self.claim():
            write_text(self.output / PLAN, json.dumps(self.plan.config, indent=1, default=str) + "\n")
            found = self.run(console)
            with console.status("summary and figures"):
                summary = self.summarise(found)
                names = []
                if self.plan.config["figures"]:  # Matplotlib is imported only here and in the modules of figures
                    from matplotlib import rc_context

                    from experiments.common.style import RC

                    with rc_context(RC):
                        names = self.draw(found, summary)
                write_summary(self.output, {**summary, "config": self.plan.config}, self.markdown(summary, names))
                self.sheet(summary).write_csv(self.output / "summary.csv")
        return found, summary


def study_command(name: str, make: Callable[[DictConfig], Study[Any, Any]]) -> Callable[[], None]:
    """The command of a study, which `make` builds from conf/`name`.yaml."""

    @command(name, RuntimeError)
    def main(config: DictConfig, console: Console) -> Path:
        study = make(config)
        _, summary = study(console)
        study.sheet(summary).show(console)
        return study.output

    return main


def evenly(given: Sequence[Any], count: int | None) -> tuple[Any, ...]:
    """At most `count` items at even distances in a list; all if `count` is None."""
    places = np.linspace(0, len(given) - 1, len(given) if count is None else count).round().astype(int)
    return tuple(given[i] for i in np.unique(places))


def all_lines(lines: Mapping[str, np.ndarray]) -> list[Row]:
    """All rows of a grid, in one list."""
    return [line for of in lines.values() for line in of.flat]


# Stamps that state the origin of numbers that are compared with published numbers.

class Stamp(StrEnum):
    """Origin of our numbers in a table."""

    REPRODUCED = "reproduced"
    REPLICATED = "replicated"
    PREDICTED = "predicted"

    @property
    def meaning(self) -> str:
        """Explanation of the stamp."""
        return MEANINGS[self]


MEANINGS = {
    Stamp.REPRODUCED: "measured here on the device of the published numbers",
    Stamp.REPLICATED: "measured here, published numbers, if any, on another device; ratios compare, times do not",
    Stamp.PREDICTED: "latencies are the analytic model's, no kernel was timed; no claim rests on this table",
}
