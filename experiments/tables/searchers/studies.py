"""Run or resume the studies behind tables of search strategies, and give their results for rows and notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from agents.cli.arguments import compose
from agents.runs.texts import interval_text
from experiments import statistics
from experiments.studies.search.scores import Scores
from experiments.studies.search.study import SearchStudy
from experiments.tables.table import Cell, Stamp
from gensor_gym.measure.stats.intervals import LEVEL

RESAMPLES = 1000


@dataclass(frozen=True)
class Study:
    """Results of a study; `folder` contains its page, figures and trials."""

    name: str
    folder: Path
    scores: Scores
    summary: dict[str, Any]

    @property
    def stamp(self) -> Stamp:
        """Stamp of its numbers."""
        return Stamp(self.summary["stamp"])

    @property
    def checkpoints(self) -> list[int]:
        """Numbers of trials at which results are reported."""
        found: list[int] = self.summary["checkpoints"]
        return found

    @property
    def conditions(self) -> str:
        """Sentence on the conditions of our numbers."""
        said = self.summary
        seeds = len(said["seeds"])
        over = "operators and seeds" if seeds > 1 else "operators"
        return (
            f"Ours: {said['hardware']} ({said['device']}), space {said['space']}, {len(said['tasks'])} operators, "
            f"{seeds} seed{'s' * (seeds > 1)}, {said['trials']} trials; {LEVEL} intervals of a bootstrap over {over}."
        )

    def regrets(self, name: str) -> list[Cell]:
        """Cells of a strategy's interquartile mean regret with interval at every checkpoint; None if the strategy is left out."""
        line = self.summary["strategies"].get(name)
        if line is None:
            return [None] * len(self.checkpoints)
        return [interval_text(value, 1) for value in line["regret"]]

    def difference(self, name: str, other: str) -> Cell:
        """Cell of the paired difference of regret after the last checkpoint, with its interval; None if unknown."""
        found = self.summary["strategies"].get(name, {}).get("over", {}).get(other)
        if found is None:
            return None
        value = found[-1]
        return f"{100 * value['mean']:+.1f} % [{100 * value['low']:+.1f}, {100 * value['high']:+.1f}]"

    def verdicts(self) -> list[str]:
        """A sentence for each hypothesis: the expectation, and the result at each checkpoint."""
        lines = []
        for name, said in self.summary["hypotheses"].items():
            beside = said.get("beside", self.summary["reference"])
            found = ", ".join(f"{v} after {k}" for k, v in zip(self.checkpoints, said["found"], strict=True))
            lines.append(f"{name} beside {beside}: expected {said['direction']}, because {said['because']}. Found: {found}.")
        return [*lines, *(f"Left out: {name}: {why}" for name, why in self.summary["broken"].items())]


def study_of(name: str, folder: Path, overrides: Sequence[str]) -> Study:
    """Run or resume the study of the experiment `name` in a folder of this name; finished searches are not repeated."""
    place = folder / name
    config = compose([f"experiment={name}", f"output={place}", *overrides], name="study")
    scores, summary = SearchStudy(config)(Console(stderr=True))
    return Study(name, place, scores, summary)


def speeds(scores: Scores, name: str) -> np.ndarray:
    """Speed relative to the task's best program, 1 being the best, float64 [tasks, seeds, trials]."""
    return np.exp(-scores.curves[name].regret)


def with_interval(
    values: np.ndarray, digits: int = 2, statistic: Callable[[np.ndarray], float] = lambda of: float(np.exp(np.log(of).mean()))
) -> str:
    """Text of a statistic of ratios [tasks, seeds], by default their geometric mean, and of the ends of its interval."""
    low, high = statistics.bootstrap(statistic, values, resamples=RESAMPLES)
    return f"{statistic(values):.{digits}f} [{float(low):.{digits}f}, {float(high):.{digits}f}]"
