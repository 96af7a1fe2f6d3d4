"""Gensor's traverser carried over to fused operators: the benefit of a primitive becomes its probability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.gir.actions import STOP, applied
from gensor_gym.gir.graph import GirGraph
from gensor_gym.measure.session import BudgetSpent, Session


@dataclass(frozen=True)
class GirMarkov:
    """Walkers that take each legal primitive a with P(a) proportional to B(a)^(1 / temperature).

    B(a) = T(s) / T(s'), the seconds of the model before and after it: Gensor (arXiv 2502.11407) weighs primitives of one loop
    nest by benefits of its own, which say nothing of placements. The form is ours. Each walker's temperature falls from `hot` to
    `cold` in its steps. The programs visited are ranked by the model and measured in that order.
    """

    space: str = "gir"
    walkers: int = 16
    hot: float = 2.0
    cold: float = 0.2

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Walk, then measure until the budget is spent; walk again while there is budget left and something new is met."""
        graph: GirGraph = session.graph  # type: ignore[assignment]
        measured: set[bytes] = set()
        while fresh := {key: seconds for key, seconds in self.walk(graph, rng).items() if key not in measured}:
            for key in sorted(fresh, key=fresh.__getitem__):
                measured.add(key)
                session.measure([graph.schedule(np.frombuffer(key, np.int32))])  # type: ignore[list-item]

    def walk(self, graph: GirGraph, rng: np.random.Generator) -> dict[bytes, float]:
        """Seconds by the model of all programs that one round of walkers visits, by their rows' bytes."""
        rows = np.repeat(graph.initial().row[None], self.walkers, axis=0)
        seconds = graph.latencies(rows)
        found = dict(zip((row.tobytes() for row in rows), seconds.tolist(), strict=True))
        for temperature in np.geomspace(self.hot, self.cold, graph.horizon):
            try:
                rows, seconds = self._step(graph, rows, seconds, float(temperature), rng)
            except BudgetSpent:  # of evaluations: what was visited can still be measured
                break
            found |= zip((row.tobytes() for row in rows), seconds.tolist(), strict=True)
        return found

    def _step(
        self, graph: GirGraph, rows: np.ndarray, seconds: np.ndarray, temperature: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Every walker after one primitive; where nothing but `stop` is legal it stands still."""
        legal = graph.action_masks(rows)
        legal[:, STOP] = False
        after, there = applied(rows), np.full(legal.shape, np.inf)
        there[legal] = graph.latencies(after[legal])
        with np.errstate(divide="ignore"):
            logits = np.where(legal, np.log(seconds[:, None] / there) / temperature, -np.inf)
        noise = rng.gumbel(size=legal.shape)  # the largest of logits with Gumbel noise is a draw by their probabilities
        chosen = np.argmax(logits + noise, axis=1)
        moves = np.any(legal, axis=1)
        walkers = np.arange(len(rows))
        rows = np.where(moves[:, None], after[walkers, chosen], rows)
        return rows, np.where(moves, there[walkers, chosen], seconds)
