"""Every legal schedule of the space, once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class Exhaustive:
    """Rank every legal schedule by the model, then measure in that order until the budget is spent.

    In space `compact` and without a limit on trials this measures the whole space: its optimum is the tier's.
    """

    space: str = "compact"
    keep: int = 4096
    """Programs kept for measuring; all of them where the space has no more."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Enumerate in batches, keep the best by the model, measure."""
        rows = np.empty((0, session.graph.initial().row.size), dtype=np.int32)
        seconds = np.empty(0)
        for batch in session.graph.enumerate():
            rows = np.concatenate([rows, batch])
            seconds = np.concatenate([seconds, session.predict(batch)])
            order = np.argsort(seconds, kind="stable")[: self.keep]
            rows, seconds = rows[order], seconds[order]
        for row in rows:
            session.measure([Schedule(row)])
