"""Simulated annealing by measurement in a recorded space (Kirkpatrick et al., Science 220, 1983)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.baselines.annealing import accepts
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class TuningAnnealing:
    """Chains of one to `reach` random moves, each end measured and gone to by Metropolis' rule on log seconds (`accepts`).

    The first chain begins at the best of a few random configurations, later ones by turns at new ones and at the best measured.
    """

    starts: int = 6
    """Configurations drawn at the beginning of a chain."""
    reach: int = 2
    """A step of a chain takes one move to so many."""
    hot: float = 0.3
    """Temperature at the start of a chain: a configuration 1.35 times slower is gone to one time in three."""
    cold: float = 0.02
    """Temperature at its end."""
    steps: int = 48
    """New trials in which it falls, geometrically; then the chain ends."""
    patience: int = 60
    """Steps in a row without a new trial, after which a chain ends; so many such chains, and the space counts as exhausted."""

    def __post_init__(self) -> None:
        """ValueError names a value that no chain could have."""
        for name in ("starts", "reach", "steps", "patience"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}: expected a whole number, 1 or more")
        if not self.hot >= self.cold > 0:
            raise ValueError(f"hot={self.hot}, cold={self.cold}: expected hot >= cold > 0")

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Chain after chain."""
        chains = idle = 0
        while idle < self.patience:
            before = session.trials
            if chains % 2 and session.best is not None:
                self._chain(session, session.best[0], rng)
            else:
                drawn = [session.graph.random_schedule(rng) for _ in range(self.starts)]
                times = [found.seconds for found in session.measure(drawn)]
                self._chain(session, drawn[int(np.argmin(times))], rng)
            chains, idle = chains + 1, idle + 1 if session.trials == before else 0

    def _chain(self, session: Session, node: Any, rng: np.random.Generator) -> None:
        """One chain."""
        seconds, begin, idle = session.measure([node])[0].seconds, session.trials, 0
        while (used := session.trials - begin) < self.steps and idle < self.patience:
            after, before = self._moved(session, node, rng), session.trials
            found = session.measure([after])[0].seconds
            idle = 0 if session.trials > before else idle + 1
            temperature = self.hot * (self.cold / self.hot) ** (used / self.steps)
            if accepts(seconds, found, temperature, float(rng.random())):
                node, seconds = after, found

    def _moved(self, session: Session, node: Any, rng: np.random.Generator) -> Any:
        """Where one move to `reach` random ones lead."""
        for _ in range(int(rng.integers(1, self.reach + 1))):
            near = list(session.graph.successors(node).values())
            node = near[int(rng.integers(len(near)))] if near else node
        return node
