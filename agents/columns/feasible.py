"""Feasible choices: choices after which a partial program may still become legal, like the masks of `Write-v0`.

Resources grow with tiles, so they are checked with every later choice at its minimum. Conditions that need larger tiles (shares
of threads, whole fragments of the chosen tensor-core instruction) are checked with the sizes that are still available
(`env/writing/room.py`). A policy that draws column by column is restricted to feasible choices, as masks restrict a walk. The
check is necessary but not sufficient: some partial programs of feasible choices end in conflicting limits.

A policy without the setting `masked` redraws whole illegal programs. It uses feasible choices only if almost no draw is legal.
Redrawing whole programs keeps the policy's distribution, replacing single choices does not: in one trial, which is
not recorded, replacement made the best of 32 programs of a large convolution slower.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from agents.columns.choices import Choices
from gensor_gym.env.writing.keeping import Room


class Feasible:
    """Checks a policy's choices on one task and replaces those after which a partial program could not become legal."""

    def __init__(self, choices: Choices, rng: np.random.Generator, surest: bool = False) -> None:
        """Prepare the checks for the columns `choices`; `rng` redraws infeasible choices.

        With `surest`, the most probable feasible choice replaces an infeasible one instead.
        """
        self.rng, self.choices, self.surest = rng, choices, surest
        self._least = np.array([column.smallest for column in choices.columns])

    @cached_property
    def _room(self) -> Room:
        return Room(self.choices.graph)

    def kept(self, chosen: np.ndarray, column: int, at: np.ndarray, chances: np.ndarray) -> np.ndarray:
        """Replace the infeasible ones among the choices `at` int64 [N] for a column (tiles of an axis, or a knob).

        Return the N choices. Replacements are drawn with probabilities proportional to `chances` [N, C]. `chosen` int64 [N, K]
        are the choices of earlier columns, -1 for later columns. If all feasible choices have probability 0 in float32, they are
        equally likely. If no choice is feasible, the result is arbitrary.
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
        """Draw one choice int64 [N] per row of `weights` [N, C]; the last choice if all weights are zero."""
        total = weights.cumsum(axis=1)
        below = (total <= self.rng.random(len(weights))[:, None] * total[:, -1:]).sum(axis=1)
        found: np.ndarray = np.minimum(below, weights.shape[1] - 1)
        return found

    def is_feasible(self, chosen: np.ndarray) -> np.ndarray:
        """Return whether each partial program may still become legal, bool [N].

        `chosen` int64 [N, K] has the index of the chosen value for each column (tiles of an axis, or a knob), -1 if not chosen
        yet.
        """
        place = int((chosen[:1] >= 0).sum()) - 1
        return self._room.kept(self._rows(chosen), place)

    def open_choices(self, chosen: np.ndarray, column: int) -> np.ndarray:
        """Return whether each choice for a column (tiles of an axis, or a knob) is feasible, bool [N, C].

        `chosen` are the choices of earlier columns, as in `is_feasible`.
        """
        return self._room.options(self._rows(chosen), column, int(self.choices.counts[column]))

    def _rows(self, chosen: np.ndarray) -> np.ndarray:
        """Encode partial programs as rows int32 [N, ROW], with the smallest value of every column that is not chosen yet."""
        return self.choices.rows(np.where(chosen < 0, self._least, chosen))
