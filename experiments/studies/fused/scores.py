"""What a study of searches of fused operators runs, and the regrets of what it found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Plan:
    """What is run and what is said of it."""

    parts: tuple[str, ...]
    hardware: str
    space: str
    strategies: dict[str, dict[str, Any]]
    seeds: tuple[int, ...]
    budget_s: float
    evaluations: tuple[int, ...]
    seconds: tuple[float, ...]
    processes: int
    resamples: int
    output: Path
    figures: bool
    config: dict[str, Any]


@dataclass(frozen=True)
class Found:
    """Lines by (strategy, operator, seed), and the tasks of each part: text -> (optimum, unscheduled) in seconds."""

    lines: dict[tuple[str, str, int], dict[str, Any]]
    tasks: dict[str, dict[str, tuple[float, float]]]
    certain_s: dict[str, float]
    """Processor seconds that a table of a task took, by its text."""

    def asked(self, strategy: str) -> tuple[int, int]:
        """Least and median evaluations of the searches of a strategy."""
        counts = [line["evaluated"] for (name, *_), line in self.lines.items() if name == strategy]
        return min(counts), int(np.median(counts))

    @property
    def wall_over_processor(self) -> float:
        """Median over the searches: 1 where nothing else ran."""
        return float(np.median([line["wall_s"] / line["elapsed_s"] for line in self.lines.values()]))

    def regrets(self, plan: Plan, strategy: str, part: str, at: np.ndarray, column: int) -> np.ndarray:
        """log(T / T*) [tasks, seeds, K] after so many evaluations (column 0) or seconds (column 2); at first the unscheduled."""
        found = np.zeros((len(self.tasks[part]), len(plan.seeds), len(at)))
        for i, (text, (optimum, start)) in enumerate(self.tasks[part].items()):
            for j, seed in enumerate(plan.seeds):
                curve = self.lines[strategy, text, seed]["curve"]
                places = np.searchsorted(np.array(curve[column]), at, side="right")
                found[i, j] = np.log(np.minimum.accumulate([start, *curve[1]])[places] / optimum)
        return found
