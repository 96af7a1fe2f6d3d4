"""Which choices are feasible: a program that is begun is looked at with all that is to come as small as can be.

What tiles take of registers, shared memory, caches and code grows with each of them, so that where the smallest completion does
not fit none does. A policy that draws column by column is kept to feasible choices, as masks keep a walk to legal actions. It is
a bound and no promise: limits that ask for larger tiles (shares of threads, whole fragments) are left to the whole program, and
of windows and vectors some larger tile may take less.
"""

from __future__ import annotations

import numpy as np

from agents.columns.choices import Choices
from gensor_gym.graph.knobs.knob import CODE, L1_TILE, REGISTERS, SHARED, TASK_TILE

GROWING = REGISTERS | CODE | SHARED | L1_TILE | TASK_TILE
"""Limits on what grows with tiles."""
AT_ONCE = 1 << 15
"""Programs that are looked at together, for the memory they take."""


class Feasible:
    """The feasible choices of one task."""

    def __init__(self, choices: Choices, rng: np.random.Generator) -> None:
        """Find the smallest choice of every column."""
        self.rng, self.choices = rng, choices
        self._least = np.array([column.smallest for column in choices.columns])

    def kept(self, chosen: np.ndarray, column: int, at: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """Choices int64 [N] of a column, drawn by chances [N, C], in place of those of `at` [N] that are not feasible.

        `chosen`: what the columns are so far, int64 [N, K], -1 where nothing is chosen. Where no choice is feasible, any; where
        those that are have no chance at all in float32, each is as likely.
        """
        at, before = at.copy(), chosen.copy()
        before[:, column] = at
        stuck = np.flatnonzero(~self.is_feasible(before))
        if len(stuck):
            open_ones = self.open_choices(before[stuck], column)
            weights = chances[stuck] * open_ones
            at[stuck] = self._drawn(np.where(weights.sum(axis=1, keepdims=True) > 0.0, weights, open_ones))
        return at

    def _drawn(self, weights: np.ndarray) -> np.ndarray:
        """Choices int64 [N] by weights [N, C]; any where all are zero."""
        total = weights.cumsum(axis=1)
        below = (total <= self.rng.random(len(weights))[:, None] * total[:, -1:]).sum(axis=1)
        found: np.ndarray = np.minimum(below, weights.shape[1] - 1)
        return found

    def is_feasible(self, chosen: np.ndarray) -> np.ndarray:
        """Whether programs may fit of which columns are chosen, int64 [N, K], -1 where nothing is; bool [N]."""
        whole = np.where(chosen < 0, self._least, chosen)
        return self.choices.graph.fits(self.choices.rows(whole), GROWING)

    def open_choices(self, chosen: np.ndarray, column: int) -> np.ndarray:
        """Which choices of a column are feasible beside the others that are chosen, int64 [N, K] as above; bool [N, C]."""
        count = self.choices.counts[column]
        found = [np.empty((0, count), dtype=np.bool_)]
        step = max(1, AT_ONCE // count)
        for low in range(0, len(chosen), step):
            tried = np.repeat(chosen[low : low + step], count, axis=0)
            tried[:, column] = np.tile(np.arange(count), len(tried) // count)
            found.append(self.is_feasible(tried).reshape(-1, count))
        return np.concatenate(found)
