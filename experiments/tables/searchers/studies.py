"""Studies behind the tables of search strategies: run or resumed, with their results as cells and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from rich.console import Console

from agents.cli.arguments import compose
from agents.runs.texts import interval_text
from experiments.common import statistics, style
from experiments.studies.search.scores import Scores
from experiments.studies.search.study import SearchStudy
from experiments.tables.table import Cell, Stamp
from gensor_gym.measure.stats.intervals import LEVEL

RESAMPLES = 1000


@dataclass(frozen=True)
class Study:
    """A study that was run: its scores and summary, and the folder with its page, figures and trials."""

    name: str
    folder: Path
    scores: Scores
    summary: dict[str, Any]

    @property
    def stamp(self) -> Stamp:
        """Origin of the study's numbers."""
        return Stamp(self.summary["stamp"])

    @property
    def checkpoints(self) -> list[int]:
        """Numbers of trials after which results are reported."""
        found: list[int] = self.summary["checkpoints"]
        return found

    @property
    def conditions(self) -> str:
        """Sentence on the conditions under which our numbers were made."""
        said = self.summary
        seeds = len(said["seeds"])
        over = "operators and seeds" if seeds > 1 else "operators"
        return (
            f"Ours: {said['hardware']} ({said['device']}), space {said['space']}, {len(said['tasks'])} operators, "
            f"{seeds} seed{'s' * (seeds > 1)}, {said['trials']} trials; {LEVEL} intervals of a bootstrap over {over}."
        )

    def regrets(self, name: str) -> list[Cell]:
        """Return cells of a strategy's interquartile mean regret with interval at every checkpoint; None if it is left out."""
        line = self.summary["strategies"].get(name)
        if line is None:
            return [None] * len(self.checkpoints)
        return [interval_text(value, 1) for value in line["regret"]]

    def difference(self, name: str, other: str) -> Cell:
        """Return the cell of the paired difference of regret after the last checkpoint, with its interval; None if unknown."""
        found = self.summary["strategies"].get(name, {}).get("over", {}).get(other)
        if found is None:
            return None
        value = found[-1]
        return f"{100 * value['mean']:+.1f} % [{100 * value['low']:+.1f}, {100 * value['high']:+.1f}]"

    def verdicts(self) -> list[str]:
        """Return a sentence for each hypothesis (expectation and result at each checkpoint) and for each left-out strategy."""
        lines = []
        for name, said in self.summary["hypotheses"].items():
            beside = said.get("beside", self.summary["reference"])
            found = ", ".join(f"{v} after {k}" for k, v in zip(self.checkpoints, said["found"], strict=True))
            lines.append(f"{name} against {beside}: expected {said['direction']}, because {said['because']}. Found: {found}.")
        return [*lines, *(f"Left out: {name}: {why}" for name, why in self.summary["broken"].items())]


def study_of(name: str, folder: Path, overrides: Sequence[str]) -> Study:
    """Run or resume the study of the experiment `name` in a folder of this name, and return it.

    Searches that are finished are not repeated.
    """
    place = folder / name
    config = compose([f"experiment={name}", f"output={place}", *overrides], name="study")
    scores, summary = SearchStudy(config)(Console(stderr=True))
    return Study(name, place, scores, summary)


def speeds(scores: Scores, name: str) -> np.ndarray:
    """Return a strategy's speed relative to the task's best program (1: the best), float64 [tasks, seeds, trials]."""
    return np.exp(-scores.curves[name].regret)


def with_interval(
    values: np.ndarray, digits: int = 2, statistic: Callable[[np.ndarray], float] = lambda of: float(np.exp(np.log(of).mean()))
) -> str:
    """Return the text of a statistic of ratios [tasks, seeds], by default their geometric mean, with its interval."""
    low, high = statistics.bootstrap(statistic, values, resamples=RESAMPLES)
    return f"{statistic(values):.{digits}f} [{float(low):.{digits}f}, {float(high):.{digits}f}]"


# Curves of searches: speed relative to the best known program, against trials, a panel for each comparison.

POINTS = 40
RESAMPLES_DRAWN = 300
COLUMNS = 3
LINES = ("-", "--", ":", "-.")

Panels = Mapping[str, Mapping[str, np.ndarray]]
"""Title of a panel -> name of a line -> speeds [tasks, seeds, points] or [tasks, seeds, trials]."""


def draw_speeds(panels: Panels, path: Path, x: Sequence[float] | None = None) -> str:
    """Draw speeds with intervals, a panel for each entry of `panels`, write the figure, and return its file name.

    The points are at `x`, by default 1, 2, .. trials; panels share both axes.
    """
    with plt.rc_context(style.RC):
        width = 5.2 if len(panels) == 1 else 3.7
        figure, grid = style.panels(len(panels), COLUMNS, (width, 3.0), sharex=True, sharey=True)
        for axes, (title, curves) in zip(grid.flat, panels.items(), strict=False):
            _panel(axes, title, curves, x)
        figure.supxlabel("trials", fontsize=9)
        figure.supylabel("speed over the best known's", fontsize=9)
        return style.save(figure, path)


def _panel(axes: Axes, title: str, curves: Mapping[str, np.ndarray], x: Sequence[float] | None) -> None:
    looks = style.look(list(curves))
    for number, (name, values) in enumerate(curves.items()):
        place = np.arange(1, values.shape[2] + 1) if x is None else np.asarray(x)
        kept = np.unique(np.linspace(0, len(place) - 1, POINTS).astype(int))
        logs = np.log(values[..., kept])
        low, high = statistics.bootstrap(_mean, logs, resamples=RESAMPLES_DRAWN)
        colour, _ = looks[name]
        axes.fill_between(place[kept], np.exp(low), np.exp(high), color=colour, alpha=0.12, linewidth=0)
        axes.plot(place[kept], np.exp(_mean(logs)), color=colour, linestyle=LINES[number % len(LINES)], linewidth=1.5, label=name)
    axes.set_title(title)
    axes.set_ylim(top=1.02)
    axes.legend(loc="best", fontsize=7.5)


def _mean(logs: np.ndarray) -> np.ndarray:
    return logs.mean(axis=(0, 1))
