"""Gensor's traverser adapted to fused operators: a primitive's probability grows with its benefit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_gym.gir.actions import STOP
from gensor_gym.measure.session import BudgetSpent, Session
from gensor_gym.rows.steps import StepGraph


@dataclass(frozen=True)
class GirMarkov:
    """Random walks over fused schedules, in which a primitive's probability grows with its benefit.

    A walker takes each legal primitive a with P(a) proportional to B(a)^(1 / temperature). The benefit B(a) = T(s) / T(s') is the
    ratio of the model's seconds before and after the primitive. We defined it: the benefits of Gensor (arXiv 2502.11407) are for
    the primitives of one loop nest and do not cover placements. The temperature decreases from `hot` to `cold` along a walk. The
    visited programs are ranked by the model and measured in that order.
    """

    space: str = "gir"
    walkers: int = 16
    hot: float = 2.0
    cold: float = 0.2

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Walk and measure the visited programs again and again, until the budget is spent or no new program is found."""
        graph: StepGraph[Any] = session.graph  # type: ignore[assignment]
        measured: set[bytes] = set()
        while fresh := {key: seconds for key, seconds in self.walk(graph, rng).items() if key not in measured}:
            for key in sorted(fresh, key=fresh.__getitem__):
                measured.add(key)
                session.measure([graph.schedule(np.frombuffer(key, np.int32))])

    def walk(self, graph: StepGraph[Any], rng: np.random.Generator) -> dict[bytes, float]:
        """Run all walkers once from the unscheduled program.

        Return the model seconds of all programs that they visit, by the bytes of the encoded program.
        """
        rows = np.repeat(graph.initial().row[None], self.walkers, axis=0)
        seconds = graph.latencies(rows)
        found = dict(zip((row.tobytes() for row in rows), seconds.tolist(), strict=True))
        for temperature in np.geomspace(self.hot, self.cold, graph.horizon):
            try:
                rows, seconds = self._step(graph, rows, seconds, float(temperature), rng)
            except BudgetSpent:  # the budget of evaluations; the visited programs can still be measured
                break
            found |= zip((row.tobytes() for row in rows), seconds.tolist(), strict=True)
        return found

    def _step(
        self, graph: StepGraph[Any], rows: np.ndarray, seconds: np.ndarray, temperature: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Let each walker take one primitive; return (encoded programs after it, their model seconds).

        A walker whose only legal primitive is `stop` stays.
        """
        legal = graph.action_masks(rows)
        legal[:, STOP] = False
        after, there = graph.applied(rows), np.full(legal.shape, np.inf)
        there[legal] = graph.latencies(after[legal])
        with np.errstate(divide="ignore"):
            logits = np.where(legal, np.log(seconds[:, None] / there) / temperature, -np.inf)
        noise = rng.gumbel(size=legal.shape)  # the maximum of logits with Gumbel noise is a draw by their probabilities
        chosen = np.argmax(logits + noise, axis=1)
        moves = np.any(legal, axis=1)
        walkers = np.arange(len(rows))
        rows = np.where(moves[:, None], after[walkers, chosen], rows)
        return rows, np.where(moves, there[walkers, chosen], seconds)
