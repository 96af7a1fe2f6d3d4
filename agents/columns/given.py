"""Known programs (demonstrations) that replace some of the programs that a policy draws in training."""

from __future__ import annotations

import numpy as np

from agents.columns.feasible import Feasible


class Given:
    """Replace the first programs of a batch by known programs; their probabilities are computed like those of drawn programs."""

    def __init__(self, chosen: np.ndarray, feasible: Feasible | None = None) -> None:
        """Take the demonstrations as choices int64 [G, K]. A network that masks choices needs `feasible` too."""
        self.chosen, self.feasible = chosen, feasible

    def kept(self, _chosen: np.ndarray, column: int, at: np.ndarray, _chances: np.ndarray) -> np.ndarray:
        """Replace the first G of the choices `at` int64 [N] for a column by those of the G demonstrations; N is at least G.

        The arguments are those of `Feasible.kept`.
        """
        return np.concatenate([self.chosen[:, column], at[len(self.chosen) :]])

    def open_choices(self, chosen: np.ndarray, column: int) -> np.ndarray:
        """Return whether each choice for a column may be drawn, as `Feasible.open_choices`; choices of demonstrations always may.

        ValueError if `feasible` was not given.
        """
        if self.feasible is None:
            raise ValueError("a masked network needs to know which choices are open: expected `feasible`, got None")
        found = self.feasible.open_choices(chosen, column)
        found[np.arange(len(self.chosen)), self.chosen[:, column]] = True
        return found
