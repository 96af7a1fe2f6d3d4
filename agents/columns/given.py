"""Programs that a policy is given to learn from, in the place of some that it would draw."""

from __future__ import annotations

import numpy as np


class Given:
    """Programs that are known, in the place of the first ones drawn: how likely they are is told as of any other."""

    def __init__(self, chosen: np.ndarray) -> None:
        """Their choices, int64 [G, K]."""
        self.chosen = chosen

    def kept(self, _chosen: np.ndarray, column: int, at: np.ndarray, _chances: np.ndarray) -> np.ndarray:
        """Choices int64 [N] of a column, N >= G; as `agents.columns.feasible.Feasible.kept`."""
        return np.concatenate([self.chosen[:, column], at[len(self.chosen) :]])
