"""Numbers of schedules: the indices in a schedule's row are the digits of its number.

So an array that is indexed by these numbers describes a whole space.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gensor_gym.gir.actions import ACTIONS, NUM_ACTIONS
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.placement import Level, levels_of
from gensor_gym.gir.schedule import FIELDS, HEADER, ROW, GirSchedule


def _moves() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the effect of every action on a schedule's row, int64 [NUM_ACTIONS] each.

    The three arrays are (entry of the row that the action changes, amount that it adds, value that it sets). Only `place` sets a
    value; for other actions the value is -1.
    """
    digit, by, to = (np.zeros(NUM_ACTIONS, np.int64) for _ in range(3))
    to[:] = -1
    for number, action in enumerate(ACTIONS[1:], 1):
        if action.primitive == "place":
            digit[number], to[number] = HEADER + action.cell, action.level
        else:
            digit[number], by[number] = GirSchedule.places[action.target], 1 if action.primitive == "raise" else -1
    return digit, by, to


_DIGIT, _BY, _TO = _moves()
_PLACE, _LEVELS = 1 + 2 * HEADER, np.arange(len(Level))
"""Index of the first action `place`, and all memory levels in the order of the actions `place` of one value."""


@dataclass(frozen=True)
class Numbering:
    """A mixed-radix numbering of schedules.

    `counts` is the radix and `strides` the weight of each digit of a number, int64 [ROW]. With [B, ROW], each of B numbers
    belongs to a space of its own.
    """

    counts: np.ndarray
    strides: np.ndarray

    @classmethod
    def of(cls, nest: RowNest) -> Numbering:
        """Return the numbering of all schedules of a row nest.

        A schedule has room for more memory levels than the nest has values to place; the remaining digits are always 0.
        """
        placed = [1 + max(levels_of(nest, name)) for name in nest.crossing]
        counts = np.array([*(len(field.values) for field in FIELDS), *placed, *[1] * (ROW - HEADER - len(placed))])
        return cls(counts, np.append(np.cumprod(counts[:0:-1])[::-1], 1))

    @classmethod
    def stacked(cls, some: Iterable[Numbering]) -> Numbering:
        """Stack the numberings of K spaces into one, with fields int64 [K, ROW]."""
        counts, strides = zip(*((one.counts, one.strides) for one in some), strict=True)
        return cls(np.stack(counts), np.stack(strides))

    def take(self, lines: np.ndarray) -> Numbering:
        """Return a numbering [B, ROW] in which number i belongs to space `lines[i]`, int64 [B], of the stacked spaces."""
        return Numbering(self.counts[lines], self.strides[lines])

    @property
    def size(self) -> int:
        """Number of schedules in the space, legal or not."""
        return int(np.prod(self.counts, axis=-1))

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers int64 [B] of schedules int32 [B, ROW]."""
        found: np.ndarray = (rows * self.strides).sum(axis=-1)
        return found

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the schedules, int32 [B, ROW], with the numbers `numbers`, int64 [B]."""
        found: np.ndarray = numbers[:, None] // self.strides % self.counts
        return found.astype(np.int32)

    def after(self, numbers: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return the numbers, int64 [B], of the schedules after one action each.

        `actions` are indices of actions, int64 [B]; an action that would leave the range of its field changes nothing.
        """
        digit, by, to = _DIGIT[actions], _BY[actions], _TO[actions]
        lines = [np.arange(len(self.counts))] if self.counts.ndim > 1 else []
        counts, strides = self.counts[(*lines, digit)], self.strides[(*lines, digit)]
        now = numbers // strides % counts
        after = np.where(to >= 0, to, now + by)
        stays = (after < 0) | (after >= counts)
        found: np.ndarray = numbers + np.where(stays, 0, after - now) * strides
        return found

    def successors(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the numbers of the schedules after every action, int64 [B, NUM_ACTIONS].

        `rows`, int32 [B, ROW], are the schedules with the numbers `numbers`.
        """
        counts, strides = self.counts[..., :HEADER], self.strides[..., :HEADER]
        header, cells = rows[:, :HEADER], rows[:, HEADER:, None]
        moves = np.zeros((len(rows), NUM_ACTIONS), np.int64)
        moves[:, 1:_PLACE:2] = np.where(header + 1 < counts, strides, 0)
        moves[:, 2:_PLACE:2] = np.where(header > 0, -strides, 0)
        there = _LEVELS < self.counts[..., HEADER:, None]
        placed = np.where(there, (_LEVELS - cells) * self.strides[..., HEADER:, None], 0)
        moves[:, _PLACE:] = placed.reshape(len(rows), NUM_ACTIONS - _PLACE)
        return numbers[:, None] + moves
