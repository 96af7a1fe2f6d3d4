"""What a study of policies on machines held out runs, and the regrets of what it found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.studies.generalise.policies import Trained


@dataclass(frozen=True)
class Plan:
    """What is run."""

    operators: tuple[str, ...]
    machines: tuple[str, ...]
    strategies: dict[str, dict[str, Any]]
    seeds: tuple[int, ...]
    seconds: tuple[float, ...]
    evaluations: tuple[int, ...]
    output: Path
    figures: bool
    config: dict[str, Any]


@dataclass(frozen=True)
class Found:
    """Lines by (strategy, operator, machine, seed), the best known of each task and the unscheduled program, in seconds."""

    plan: Plan
    lines: dict[tuple[str, str, str, int], dict[str, Any]]
    policies: dict[str, list[Trained]]
    best: dict[tuple[str, str], float]
    start: dict[tuple[str, str], float]

    @property
    def names(self) -> list[str]:
        """Policies, then strategies."""
        return [*self.plan.config["policies"], *self.plan.strategies]

    @property
    def tasks(self) -> list[tuple[str, str]]:
        """(operator, machine), machine by machine."""
        return [(text, machine) for machine in self.plan.machines for text in self.plan.operators]

    def regrets(self, name: str, at: np.ndarray, column: int) -> np.ndarray:
        """log(T / T*) [tasks, seeds, K] after so many evaluations (column 0) or seconds (column 2); at first the unscheduled."""
        found = np.zeros((len(self.tasks), len(self.plan.seeds), len(at)))
        for i, task in enumerate(self.tasks):
            for j, seed in enumerate(self.plan.seeds):
                curve = self.lines[name, *task, seed]["curve"]
                places = np.searchsorted(np.array(curve[column]), at, side="right")
                found[i, j] = np.log(np.minimum.accumulate([self.start[task], *curve[1]])[places] / self.best[task])
        return found
