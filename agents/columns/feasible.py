"""Which choices are feasible: those with which a program that is begun may still become legal, as masks of `Write-v0` say.

What tiles take grows with them, so that it is looked at with all that is to come as small as can be; what asks for larger tiles
(shares of threads, whole fragments of the unit that was chosen) with the sizes that may still come (`env/writing/room.py`). A
policy that draws column by column is kept to feasible choices, as masks keep a walk to legal actions. It is a bound and no
promise: of programs that keep room some meet in the end two limits that cannot be kept together.

A policy without the setting `masked` rejects illegal programs whole and comes here only where hardly any draw is legal. Rejection
keeps the policy's own distribution, replacing a choice does not (best of 32 on a large convolution: 3.8 and 7.8 %, in no file).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from agents.columns.choices import Choices
from gensor_gym.env.writing.keeping import Room


class Feasible:
    """The feasible choices of one task."""

    def __init__(self, choices: Choices, rng: np.random.Generator, surest: bool = False) -> None:
        """`surest`: an infeasible choice is replaced by the most probable feasible one; otherwise a feasible one is drawn."""
        self.rng, self.choices, self.surest = rng, choices, surest
        self._least = np.array([column.smallest for column in choices.columns])

    @cached_property
    def _room(self) -> Room:
        """Of the task."""
        return Room(self.choices.graph)

    def kept(self, chosen: np.ndarray, column: int, at: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """Choices int64 [N] of a column, drawn by chances [N, C], in place of those of `at` [N] that are not feasible.

        `chosen`: what the columns are so far, int64 [N, K], -1 where nothing is chosen. Where no choice is feasible, any; where
        those that are have no chance at all in float32, each is as likely.
        """
        at, before = at.copy(), chosen.copy()
        before[:, column] = at
        stuck = np.flatnonzero(~self.is_feasible(before))
        if len(stuck):
            open_ones = self.open_choices(chosen[stuck], column)
            weights = chances[stuck] * open_ones
            weights = np.where(weights.sum(axis=1, keepdims=True) > 0.0, weights, open_ones)
            at[stuck] = weights.argmax(axis=1) if self.surest else self._drawn(weights)
        return at

    def _drawn(self, weights: np.ndarray) -> np.ndarray:
        """Choices int64 [N] by weights [N, C]; any where all are zero."""
        total = weights.cumsum(axis=1)
        below = (total <= self.rng.random(len(weights))[:, None] * total[:, -1:]).sum(axis=1)
        found: np.ndarray = np.minimum(below, weights.shape[1] - 1)
        return found

    def is_feasible(self, chosen: np.ndarray) -> np.ndarray:
        """Whether programs may become legal whose first columns are chosen, int64 [N, K], -1 beyond; bool [N]."""
        place = int((chosen[:1] >= 0).sum()) - 1
        return self._room.kept(self._rows(chosen), place)

    def open_choices(self, chosen: np.ndarray, column: int) -> np.ndarray:
        """Which choices of a column are feasible behind those chosen, int64 [N, K] as above; bool [N, C]."""
        return self._room.options(self._rows(chosen), column, int(self.choices.counts[column]))

    def _rows(self, chosen: np.ndarray) -> np.ndarray:
        """Rows int32 [N, ROW]; columns that are not chosen yet hold their smallest value."""
        return self.choices.rows(np.where(chosen < 0, self._least, chosen))
