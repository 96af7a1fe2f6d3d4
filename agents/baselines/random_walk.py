"""Random walks over legal actions: the floor that every strategy must beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.measure.search import Node
from gensor_gym.measure.session import SearchSession


@dataclass(frozen=True)
class RandomWalk:
    """Measure the ends of random walks from the unscheduled program, until the budget is spent."""

    space: str = "extended"
    batch: int = 4
    patience: int = 100
    """Walks in a row that end at a program already tried, after which the space counts as exhausted."""

    def search(self, session: SearchSession[Node], rng: np.random.Generator) -> None:
        """Walk, measure, repeat."""
        idle = 0
        while idle < self.patience:
            before = session.trials
            session.measure([session.graph.random_schedule(rng) for _ in range(self.batch)])
            idle = 0 if session.trials > before else idle + self.batch
