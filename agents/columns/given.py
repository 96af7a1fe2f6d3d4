"""Programs that a policy is given to learn from, in the place of some that it would draw."""

from __future__ import annotations

import numpy as np

from agents.columns.feasible import Feasible


class Given:
    """Programs that are known, in the place of the first ones drawn: how likely they are is told as of any other."""

    def __init__(self, chosen: np.ndarray, feasible: Feasible | None = None) -> None:
        """Their choices, int64 [G, K]; what the others are kept to."""
        self.chosen, self.feasible = chosen, feasible

    def kept(self, chosen: np.ndarray, column: int, at: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """Choices int64 [N] of a column, N >= G; as `agents.columns.feasible.Feasible.kept`."""
        known = len(self.chosen)
        others = at[known:]
        if self.feasible is not None and len(others):
            others = self.feasible.kept(chosen[known:], column, others, chances[known:])
        return np.concatenate([self.chosen[:, column], others])
