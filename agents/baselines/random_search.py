"""Random search: legal programs of the space, drawn uniformly without repetition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.core.ledger import Ledger
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class RandomSearch:
    """Measure programs drawn uniformly without replacement, until the budget is spent or the space is exhausted.

    The expected best time on a recorded table has a closed form: `experiments.common.statistics.expected_best`.
    """

    space: str = "extended"
    batch: int = 8
    """Number of programs measured at a time."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Draw random unmeasured programs and measure them, batch after batch."""
        ledger = Ledger(session)
        while drawn := ledger.fresh(rng, self.batch):
            ledger.measure(drawn)
