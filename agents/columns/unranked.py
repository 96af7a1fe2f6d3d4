"""A policy that writes columns, without the model's ranking: its programs are measured in the order in which they are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.columns.choices import choices_of
from agents.columns.policy import Columns, Memory, load_columns, write
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class ColumnsUnranked(Columns):
    """Measure the programs of a policy that writes columns, in the order in which they are drawn.

    The most probable program comes first, then random draws. The analytic model is not used.
    """

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Write and measure one program after another, until the budget is spent or the policy writes no new program."""
        graph, memory = session.graph, Memory(self.temperature)
        network = load_columns(str(self.folder(graph)), self.trust)
        while len(rows := write(network, choices_of(graph), 1, memory, rng)):
            session.measure([Schedule(row) for row in rows])
