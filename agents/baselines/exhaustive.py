"""Every legal schedule of the space, once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class Exhaustive:
    """Rank every legal schedule by the model, then measure in that order until the budget is spent.

    In space `compact` and without a limit on trials this measures the whole space: its optimum is the tier's.
    """

    space: str = "compact"
    keep: int = 4096
    """Programs kept for measuring, or as many as the budget has trials; all of them where the space has no more."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Enumerate in batches, keep the best by the model, measure."""
        rows, seconds = session.graph.stack([]), np.empty(0)
        keep = max(self.keep, session.budget.trials or 0)
        for batch in session.graph.enumerate():
            rows = np.concatenate([rows, batch])
            seconds = np.concatenate([seconds, session.predict(batch)])
            order = np.argsort(seconds, kind="stable")[:keep]
            rows, seconds = rows[order], seconds[order]
        for row in rows:
            session.measure([session.graph.schedule(row)])
