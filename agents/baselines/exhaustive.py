"""Every legal schedule of the space, or every configuration of a recorded one, once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gensor_gym.measure.search import Node
from gensor_gym.measure.session import SearchSession, Session


@dataclass(frozen=True)
class Exhaustive:
    """Rank every legal schedule by the model, then measure in that order until the budget is spent.

    In space `compact` and without a limit on trials this measures the whole space: its optimum is the tier's. No model ranks
    a recorded space: there the order is that of the file.
    """

    space: str = "compact"
    keep: int = 4096
    """Programs kept for measuring, or as many as the budget has trials; all of them where the space has no more."""

    def search(self, session: SearchSession[Node], rng: np.random.Generator) -> None:
        """Measure one after the other."""
        rows = self._ranked(session) if isinstance(session, Session) else chain.from_iterable(session.graph.enumerate())
        for row in rows:
            session.measure([session.graph.schedule(row)])

    def _ranked(self, session: Session) -> Iterable[np.ndarray]:
        """Enumerate in batches, keep the best by the model."""
        rows, seconds = session.graph.stack([]), np.empty(0)
        keep = max(self.keep, session.budget.trials or 0)
        for batch in session.graph.enumerate():
            rows = np.concatenate([rows, batch])
            seconds = np.concatenate([seconds, session.predict(batch)])
            order = np.argsort(seconds, kind="stable")[:keep]
            rows, seconds = rows[order], seconds[order]
        return rows
