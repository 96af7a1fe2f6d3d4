"""Choose actions so that an episode does not return to programs that it has visited.

Gensor's graph has an inverse for every primitive. A greedy policy loops forever as soon as it reaches a program twice, and a
sampling policy spends model evaluations on programs that it has visited before. The rule is ours.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import STOP


class Visited:
    """Memory of the programs that each of several episodes on one graph has visited, to avoid returning to them."""

    def __init__(self, graph: ConstructionGraph, episodes: int) -> None:
        self.graph = graph
        self.been: list[set[bytes]] = [set() for _ in range(episodes)]

    def choose(self, episodes: np.ndarray, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Choose for each of B episodes the legal action with the highest score that leads to a program not yet visited.

        `episodes` [B] are the numbers of the episodes, `rows` int32 [B, ROW] their current programs, and `scores` [B, N] is -inf
        for illegal actions. Return the actions int64 [B]; an action is `stop` if no legal one leads to a new program.
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
