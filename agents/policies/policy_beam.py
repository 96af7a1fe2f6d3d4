"""Beam search that keeps the programs which a policy reaches most probably. The model ranks all observed programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learners.guide import Guide
from agents.policies.learned import LearnedWalk
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import NUM_ACTIONS, STOP


@dataclass(frozen=True)
class PolicyBeam(LearnedWalk):
    """Beam search that keeps, after every step, the `width` programs that the policy reaches with the highest probability.

    Many paths lead to a program, because the order of most actions does not matter. In our variant of beam search the
    probabilities of these paths are summed, so that the programs of a beam are distinct. With `noise`, Gumbel noise on the
    log-probabilities at every step makes repeated searches of a task visit different programs.
    """

    width: int = 16
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.width < 1 or self.noise < 0:
            raise ValueError(f"width={self.width}, noise={self.noise}: expected 1 or more, and 0 or more")

    def explore(self, graph: ConstructionGraph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """Run one beam search; return (evaluated and observed programs, their model seconds, number of states visited)."""
        guide, visited = Guide(*self.policy(graph), graph, self.retain), 0
        rows, chances = graph.initial().row[None], np.zeros(1)
        for steps in range(graph.horizon, 1, -1):
            visited += len(rows)
            rows, chances = self._step(guide, rows, chances, steps, rng)
            if not len(rows):
                break
        return *guide.programs(), visited

    def _step(
        self, guide: Guide, rows: np.ndarray, chances: np.ndarray, steps: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Advance the beam by one step; return (the most probable programs [<= width, ROW] after it, their log-probabilities)."""
        after = guide.ask(rows, steps).chances
        after[:, STOP] = -np.inf
        parents, actions = np.divmod(np.flatnonzero(np.isfinite(after)), NUM_ACTIONS)
        if not len(parents):
            return rows[:0], chances[:0]
        made, _ = guide.graph.transitions(np.ascontiguousarray(rows[parents]), actions)
        distinct, which = np.unique(made, axis=0, return_inverse=True)
        total = np.full(len(distinct), -np.inf)
        np.logaddexp.at(total, which.ravel(), chances[parents] + after[parents, actions])
        order = np.argsort(-(total + self.noise * rng.gumbel(size=len(total))), kind="stable")[: self.width]
        return distinct[order], total[order]
