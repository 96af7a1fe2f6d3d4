"""Parallel simulated annealing on a learned cost model, by which AutoTVM finds the programs to measure next.

128 annealing chains change one knob at a time. The temperature falls linearly from 1 to 0 over at most 500 steps. The search ends
early when the best candidates have not changed for 50 steps. After the model is fitted again, chains continue from their last
configurations (Chen et al., NeurIPS 2018, section 3.3; the numbers are those of the authors' released tuner). In a small space
every program is scored once and steps look scores up, which only saves time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from agents.autotvm.template import Template, keys_of

Score = Callable[[np.ndarray], np.ndarray]
"""Function that predicts the scores float64 [B] of configurations int64 [B, K]; larger is better."""


@dataclass
class AnnealingOnModel:
    """Parallel simulated annealing over one template.

    The annealing chains keep their current configurations between calls of `best`.
    """

    template: Template
    chains: int = 128
    steps: int = 500
    start_temperature: float = 1.0
    patience: int = 50
    """Number of steps without a change among the best candidates after which the search ends."""
    points: np.ndarray | None = field(default=None, init=False)
    """Current configurations of the annealing chains, [chains, K]; None before the first search."""

    def best(self, score: Score, count: int, tried: set[bytes], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Anneal the chains on a learned `score`; return the best configurations that are not in `tried`.

        Return (configurations [N, K] with N <= `count`, best first; their scores [N]).
        """
        if self.points is None:
            self.points = self.template.random(self.chains, rng)
        points, scores = self.points, score(self.points)
        heap: dict[bytes, float] = {}
        self._keep(heap, points, scores, count, tried)
        idle, cool = 0, self.start_temperature / (self.steps + 1)
        for step in range(self.steps):
            temperature = self.start_temperature - cool * step
            proposed = self.template.mutated(points, rng)
            new = score(proposed)
            gain = np.minimum((new - scores) / (temperature + 1e-5), 1.0)
            taken = rng.random(len(points)) < np.exp(gain)
            points = np.where(taken[:, None], proposed, points)
            scores = np.where(taken, new, scores)
            changed = self._keep(heap, proposed, new, count, tried)
            idle = 0 if changed else idle + 1
            if idle >= self.patience:
                break
        self.points = points
        order = sorted(heap, key=lambda key: (-heap[key], key))
        found = np.array([np.frombuffer(key, dtype=np.int64) for key in order], dtype=np.int64)
        return found.reshape(len(order), points.shape[1]), np.array([heap[key] for key in order])

    def _keep(
        self, heap: dict[bytes, float], points: np.ndarray, scores: np.ndarray, count: int, tried: set[bytes]
    ) -> bool:
        worst = min(heap.values()) if len(heap) >= count else -np.inf
        close = np.flatnonzero(scores > worst)
        changed = False
        for key, value in zip(keys_of(points[close]), scores[close].tolist(), strict=True):
            if key not in heap and key not in tried and (len(heap) < count or value > worst):
                heap[key] = value
                changed = True
                if len(heap) > count:
                    del heap[min(heap, key=heap.__getitem__)]
                    worst = min(heap.values())
        return changed
