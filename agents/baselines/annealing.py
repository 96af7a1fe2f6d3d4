"""Simulated annealing by measurement over the actions of the graph (Kirkpatrick et al., Science 220, 1983)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from agents.core.ledger import Ledger
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class Annealing:
    """Chains of short random walks over legal actions, the end of each measured.

    A slower program is gone to with probability exp(-d / T), d being the difference of the logarithms of times, so that a
    temperature means the same on every task.

    The first chain begins at the best of a few random programs, later ones by turns at a new random program and at the best
    program measured. No model is asked.
    """

    space: str = "extended"
    starts: int = 6
    """Programs drawn uniformly at the beginning, and at every restart from a new one."""
    reach: int = 4
    """A step of a chain takes one action to so many: from a register tile to another all that is built on it must change."""
    hot: float = 0.3
    """Temperature at the start of a chain: a program 1.35 times slower is gone to one time in three."""
    cold: float = 0.02
    """Temperature at its end."""
    steps: int = 48
    """New trials in which it falls, geometrically; then the chain ends."""
    patience: int = 60
    """Steps in a row without a new trial, after which a chain ends: all around is known."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Chain after chain until the budget is spent or every program measured."""
        ledger = Ledger(session)
        chains = 0
        while drawn := ledger.walked(rng, self.starts):
            if chains % 2 and session.best is not None:
                start = session.best[0]
            else:
                times = [m.seconds for m in ledger.measure(drawn)]
                start = drawn[int(np.argmin(times))]
            if not self._chain(ledger, start, rng):
                ledger.measure(drawn[:1])  # a chain that knew all around it is no search: something new, then
            chains += 1

    def _chain(self, ledger: Ledger, node: Schedule, rng: np.random.Generator) -> int:
        """One chain; returns its new trials."""
        graph, seconds = ledger.session.graph, ledger.seconds(node)
        begin = len(ledger)
        idle = 0
        while (used := len(ledger) - begin) < self.steps and idle < self.patience:
            after = graph.random_schedule(rng, int(rng.integers(1, self.reach + 1)), node)
            idle = idle + 1 if after in ledger else 0
            temperature = self.hot * (self.cold / self.hot) ** (used / self.steps)
            if accepts(seconds, found := ledger.seconds(after), temperature, float(rng.random())):
                node, seconds = after, found
        return len(ledger) - begin


def accepts(now: float, after: float, temperature: float, draw: float) -> bool:
    """Metropolis' rule on log seconds; `draw` is uniform in [0, 1). Failures are gone to from failures alone."""
    if after <= now:
        return True
    return math.isfinite(after) and draw < math.exp(-math.log(after / now) / temperature)
