"""Hill climbing by measurement with random restarts: the plain local search of auto-tuners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.measure.search import Node
from gensor_gym.measure.session import SearchSession


@dataclass(frozen=True)
class LocalSearch:
    """Climb from random programs: measure neighbours in random order and go to the first faster neighbour.

    If no neighbour is faster, an equally fast neighbour that was not visited in the climb is accepted. Otherwise actions that do
    not change the program (a change of level) would end a climb.
    """

    space: str = "extended"
    patience: int = 100
    """Number of consecutive climbs without a new trial after which the search ends."""

    def search(self, session: SearchSession[Node], rng: np.random.Generator) -> None:
        """Climb from random programs again and again, until the budget is spent or climbs reach only known programs."""
        idle = 0
        while idle < self.patience:
            before = session.trials
            self._climb(session, rng)
            idle = 0 if session.trials > before else idle + 1

    def _climb(self, session: SearchSession[Node], rng: np.random.Generator) -> None:
        node = session.graph.random_schedule(rng)
        seconds = session.measure([node])[0].seconds
        visited = {str(node)}
        while True:
            beside = None
            faster = None
            near = list(session.graph.successors(node).values())
            for i in rng.permutation(len(near)):
                found = session.measure([near[i]])[0].seconds
                if found < seconds:
                    faster = (near[i], found)
                    break
                if found == seconds and str(near[i]) not in visited:
                    beside = beside or (near[i], found)
            if (step := faster or beside) is None:
                return
            node, seconds = step
            visited.add(str(node))
