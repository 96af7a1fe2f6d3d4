"""Demonstrations that replace some of the programs that a policy draws in training."""

from __future__ import annotations

import numpy as np

from agents.columns.feasible import Feasible


class Given:
    """Known programs that replace the first drawn programs. Their probabilities are computed like those of drawn programs."""

    def __init__(self, chosen: np.ndarray, feasible: Feasible | None = None) -> None:
        """Set the choices int64 [G, K] of the demonstrations. A masked network needs the feasibility rules too."""
        self.chosen, self.feasible = chosen, feasible

    def kept(self, _chosen: np.ndarray, column: int, at: np.ndarray, _chances: np.ndarray) -> np.ndarray:
        """Choices int64 [N] of a column, N >= G: first those of the demonstrations, then `at` from G on. See `Feasible.kept`."""
        return np.concatenate([self.chosen[:, column], at[len(self.chosen) :]])

    def open_choices(self, chosen: np.ndarray, column: int) -> np.ndarray:
        """Whether each choice of a column is open, see `Feasible.open_choices`. Choices of demonstrations always are."""
        if self.feasible is None:
            raise ValueError("a masked network needs to know which choices are open: expected `feasible`, got None")
        found = self.feasible.open_choices(chosen, column)
        found[np.arange(len(self.chosen)), self.chosen[:, column]] = True
        return found
