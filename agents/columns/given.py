"""Demonstrations in the place of some programs that a policy would draw."""

from __future__ import annotations

import numpy as np

from agents.columns.feasible import Feasible


class Given:
    """Known programs that replace the first drawn ones; their probabilities are computed as usual."""

    def __init__(self, chosen: np.ndarray, feasible: Feasible | None = None) -> None:
        """Choices of the demonstrations, int64 [G, K]; feasibility rules for a masked network."""
        self.chosen, self.feasible = chosen, feasible

    def kept(self, _chosen: np.ndarray, column: int, at: np.ndarray, _chances: np.ndarray) -> np.ndarray:
        """Choices int64 [N] of a column, N >= G; as `agents.columns.feasible.Feasible.kept`."""
        return np.concatenate([self.chosen[:, column], at[len(self.chosen) :]])

    def open_choices(self, chosen: np.ndarray, column: int) -> np.ndarray:
        """Which choices of a column are open: see `Feasible.open_choices`. Those that were given are always open."""
        if self.feasible is None:
            raise ValueError("a masked network needs to know which choices are open: expected `feasible`, got None")
        found = self.feasible.open_choices(chosen, column)
        found[np.arange(len(self.chosen)), self.chosen[:, column]] = True
        return found
