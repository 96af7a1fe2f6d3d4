"""Episodes that do not go back to where they have been.

Gensor's graph has a way back for every primitive. A policy that takes the most probable action goes round in a circle as soon as
it comes to a program twice; one that draws spends evaluations of the model on programs that it has been at. Ours.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import STOP


class Visited:
    """Programs that each of several episodes on one graph has been at."""

    def __init__(self, graph: ConstructionGraph, episodes: int) -> None:
        """Nowhere yet."""
        self.graph = graph
        self.been: list[set[bytes]] = [set() for _ in range(episodes)]

    def choose(self, episodes: np.ndarray, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Actions int64 [B] of the highest scores [B, N], -inf if not legal, that lead the `episodes` [B] to new programs.

        `rows` int32 [B, ROW] is where they are. An episode that can go nowhere new stops.
        """
        for episode, row in zip(episodes, rows, strict=True):
            self.been[episode].add(row.tobytes())
        scores, actions = scores.copy(), scores.argmax(axis=1)
        left = np.flatnonzero(actions != STOP)
        while len(left):
            results, _ = self.graph.transitions(rows[left], actions[left])
            back = [i for i, row in zip(left, results, strict=True) if row.tobytes() in self.been[episodes[i]]]
            scores[back, actions[back]] = -np.inf
            actions[back] = np.where(np.isfinite(scores[back]).any(axis=1), scores[back].argmax(axis=1), STOP)
            left = np.array([i for i in back if actions[i] != STOP], dtype=np.int64)
        return actions
