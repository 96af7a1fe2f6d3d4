"""Which choices leave room for a program: one that is begun is looked at with all that is to come as small as can be.

What tiles take of registers, shared memory, caches and code grows with each of them, so that where the smallest completion does
not fit none does. A policy that draws column by column is kept to choices with room, as masks keep a walk to legal actions. It is
a bound and no promise: limits that ask for larger tiles (shares of threads, whole fragments) are left to the whole program, and
of windows and vectors some larger tile may take less.
"""

from __future__ import annotations

import numpy as np

from agents.column_choices import Choices
from gensor_gym.graph.layout import KNOB
from gensor_gym.graph.limits import CODE, L1_TILE, REGISTERS, SHARED, TASK_TILE

GROWING = REGISTERS | CODE | SHARED | L1_TILE | TASK_TILE
"""Limits on what grows with tiles."""
AT_ONCE = 1 << 15
"""Programs that are looked at together, for the memory they take."""


TRIES = 4
"""Draws of a choice that leaves room, each without those before, until all choices are looked at, or it is let be."""


class Room:
    """Room in the programs of one task."""

    def __init__(self, choices: Choices, rng: np.random.Generator, exact: bool) -> None:
        """Find the smallest choice of every column. `exact`: whether all choices are looked at where TRIES were in vain."""
        self.rng, self.exact = rng, exact
        moves = [choices.programs.moves[column] for column in choices.order]
        self.choices = choices
        self.knobs = sum(start >= KNOB for start, _, _ in moves)
        """Columns before the first axis: with knobs alone every program is small."""
        self._least = np.array([0 if start >= KNOB else int(np.argmin(values.prod(axis=1))) for start, _, values in moves])

    def kept(self, before: np.ndarray, at: np.ndarray, chances: np.ndarray, greedy: bool) -> np.ndarray:
        """Choices int64 [N] of the next column, by chances [N, C], in place of those of `at` [N] that leave no room.

        `before`: the columns chosen already, int64 [N, k]. `greedy` takes the most probable one that leaves room. Where
        none does, or where none is found and not all are looked at, it is still one that leaves none.
        """
        at = at.copy()
        stuck = np.flatnonzero(~self.is_left(np.column_stack([before, at])))
        weights = chances[stuck].astype(np.float64)
        for _ in range(0 if greedy else TRIES):
            if not len(stuck):
                return at
            weights[np.arange(len(stuck)), at[stuck]] = 0.0
            at[stuck] = self._drawn(weights)
            missed = ~self.is_left(np.column_stack([before[stuck], at[stuck]]))
            stuck, weights = stuck[missed], weights[missed]
        if len(stuck) and (self.exact or greedy):
            weights = chances[stuck] * self.open_choices(before[stuck])
            at[stuck] = weights.argmax(axis=1) if greedy else self._drawn(weights)
        return at

    def _drawn(self, weights: np.ndarray) -> np.ndarray:
        """Choices int64 [N] by weights [N, C]; any where all are zero."""
        total = weights.cumsum(axis=1)
        below = (total <= self.rng.random(len(weights))[:, None] * total[:, -1:]).sum(axis=1)
        found: np.ndarray = np.minimum(below, weights.shape[1] - 1)
        return found

    def is_left(self, chosen: np.ndarray) -> np.ndarray:
        """Whether programs may fit of which the first k columns are chosen, int64 [N, k]; bool [N]."""
        if chosen.shape[1] <= self.knobs:
            return np.ones(len(chosen), dtype=np.bool_)
        whole = np.repeat(self._least[None], len(chosen), axis=0)
        whole[:, : chosen.shape[1]] = chosen
        return self.choices.graph.fits(self.choices.rows(whole), GROWING)

    def open_choices(self, chosen: np.ndarray) -> np.ndarray:
        """Which choices of the next column leave room, bool [N, C], the first k being chosen, int64 [N, k]."""
        count = self.choices.counts[chosen.shape[1]]
        found = [np.empty((0, count), dtype=np.bool_)]
        step = max(1, AT_ONCE // count)
        for low in range(0, len(chosen), step):
            some = chosen[low : low + step]
            tried = np.concatenate([np.repeat(some, count, axis=0), np.tile(np.arange(count), len(some))[:, None]], axis=1)
            found.append(self.is_left(tried).reshape(len(some), count))
        return np.concatenate(found)
