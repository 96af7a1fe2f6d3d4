"""Base of all studies: a plan that is written first, searches that are kept, scores, and a page with figures.

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
"""Names of the files of the plan and of the finished searches' rows. Rows that ship packed are not computed again."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Checked configuration of a study; each study adds what it computes from the configuration."""

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
        """Number of searches that run at the same time."""
        return int(self.config["processes"])

    @property
    def resamples(self) -> int:
        """Number of resamples of each bootstrap."""
        return int(self.config["resamples"])


Asked = TypeVar("Asked", bound=Plan)
Found = TypeVar("Found")


class Study(ABC, Generic[Asked, Found]):
    """A study; calling it runs what is missing and writes its results. ValueError if another process uses its folder."""

    def __init__(self, plan: Asked) -> None:
        self.plan = plan

    @property
    def output(self) -> Path:
        """Folder of all files."""
        return self.plan.output

    @abstractmethod
    def run(self, console: Console) -> Found:
        """Run the searches that have no row yet; return the results of all searches."""

    @abstractmethod
    def summarise(self, found: Found) -> dict[str, Any]:
        """Return the content of summary.json, without the configuration."""

    @abstractmethod
    def draw(self, found: Found, summary: dict[str, Any]) -> list[str]:
        """Draw the figures; return their file names."""

    @staticmethod
    @abstractmethod
    def markdown(summary: dict[str, Any], figures: list[str]) -> str:
        """Return the study's page as Markdown text, from its summary and the file names of its figures."""

    @staticmethod
    @abstractmethod
    def sheet(summary: dict[str, Any]) -> Sheet:
        """Return the main table, which is printed at the end of a command and written as summary.csv."""

    def claim(self) -> closing[Any]:
        """Lock the study's folder for this process; return a context manager that unlocks it."""
        return closing(locked(self.output))

    def lines(self, wanted: Sequence[Keyed], console: Console, work: Callable[[Any], Row] = run_search) -> list[Row]:
        """Return the rows of the searches `wanted`, in order; `work` runs those without a row in parallel."""
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
        """Run the searches `make(name, task, seed)` that have no row yet; return rows, object [tasks, seeds], by name."""
        wanted = [make(name, task, seed) for name in names for task in tasks for seed in self.plan.seeds]
        rows = np.empty(len(wanted), dtype=object)
        rows[:] = self.lines(wanted, console, work)
        return dict(zip(names, rows.reshape(len(names), len(tasks), len(self.plan.seeds)), strict=True))

    def __call__(self, console: Console) -> tuple[Found, dict[str, Any]]:
        """Write the plan, run the searches, summarise them, write the page; return (results, summary)."""
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
    """Return the command of a study, which `make` builds from the configuration conf/`name`.yaml."""

    @command(name, RuntimeError)
    def main(config: DictConfig, console: Console) -> Path:
        study = make(config)
        _, summary = study(console)
        study.sheet(summary).show(console)
        return study.output

    return main


def evenly(given: Sequence[Any], count: int | None) -> tuple[Any, ...]:
    """Return at most `count` items at even distances in a list; all if `count` is None."""
    places = np.linspace(0, len(given) - 1, len(given) if count is None else count).round().astype(int)
    return tuple(given[i] for i in np.unique(places))


def all_lines(lines: Mapping[str, np.ndarray]) -> list[Row]:
    """Return all rows of a grid [tasks, seeds] by name, in one list."""
    return [line for of in lines.values() for line in of.flat]


# Stamps that state the origin of numbers that are compared with published numbers.

class Stamp(StrEnum):
    """Origin of the numbers in a table."""

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
