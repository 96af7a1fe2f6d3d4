"""Random walks over legal actions: the baseline that every strategy must beat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from agents.core.ranking import Construction
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.search import Node
from gensor_gym.measure.session import SearchSession

DRAWN = 64
"""Number of walks whose ends the model evaluates at a time."""


@dataclass(frozen=True)
class RandomWalk:
    """Measure the programs at the ends of random walks from the unscheduled program, until the budget is spent."""

    space: str = "extended"
    batch: int = 4
    patience: int = 100
    """Number of consecutive walks that end at known programs after which the search ends."""

    def search(self, session: SearchSession[Node], rng: np.random.Generator) -> None:
        """Measure the programs at the ends of random walks, batch after batch."""
        idle = 0
        while idle < self.patience:
            before = session.trials
            session.measure([session.graph.random_schedule(rng) for _ in range(self.batch)])
            idle = 0 if session.trials > before else idle + self.batch

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Evaluate the programs at the ends of random walks by the model, without end; nothing is yielded.

        The walks end only when the graph's budget raises BudgetSpent. The graph records the best program.
        """
        for _ in count():
            graph.latencies(graph.stack([graph.random_schedule(rng) for _ in range(DRAWN)]))
        yield from ()
