"""Numbers of schedules: a row's indices are the digits of its number, so arrays indexed by numbers describe a whole space."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gensor_gym.gir.actions import ACTIONS, NUM_ACTIONS
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.placement import Level, levels_of
from gensor_gym.gir.schedule import FIELDS, HEADER, ROW, GirSchedule


def _moves() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(digit that each action changes, amount that it adds, value that it sets), int64 [NUM_ACTIONS] each.

    Only `place` sets a value; for other actions the value is -1.
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
"""Index of the first action that places a cell, and the levels in the order of those actions."""


@dataclass(frozen=True)
class Numbering:
    """Radix (`counts`) and weight (`strides`) of every digit: int64 [ROW] for one space, or [B, ROW] for one space per number."""

    counts: np.ndarray
    strides: np.ndarray

    @classmethod
    def of(cls, nest: RowNest) -> Numbering:
        """Numbering of a nest's schedules; digits of unused cells are always 0."""
        placed = [1 + max(levels_of(nest, name)) for name in nest.crossing]
        counts = np.array([*(len(field.values) for field in FIELDS), *placed, *[1] * (ROW - HEADER - len(placed))])
        return cls(counts, np.append(np.cumprod(counts[:0:-1])[::-1], 1))

    @classmethod
    def stacked(cls, some: Iterable[Numbering]) -> Numbering:
        """Numbering of K spaces, with fields [K, ROW]."""
        counts, strides = zip(*((one.counts, one.strides) for one in some), strict=True)
        return cls(np.stack(counts), np.stack(strides))

    def take(self, lines: np.ndarray) -> Numbering:
        """Numbering [B, ROW] with the space of index `lines[i]`, int64 [B], for number i."""
        return Numbering(self.counts[lines], self.strides[lines])

    @property
    def size(self) -> int:
        """Number of schedules in one space."""
        return int(np.prod(self.counts, axis=-1))

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Numbers int64 [B] of schedules int32 [B, ROW]."""
        found: np.ndarray = (rows * self.strides).sum(axis=-1)
        return found

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Schedules int32 [B, ROW] of numbers int64 [B]."""
        found: np.ndarray = numbers[:, None] // self.strides % self.counts
        return found.astype(np.int32)

    def after(self, numbers: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Numbers int64 [B] of the schedules after `actions`, int64 [B]; an action that would leave the range changes nothing."""
        digit, by, to = _DIGIT[actions], _BY[actions], _TO[actions]
        lines = [np.arange(len(self.counts))] if self.counts.ndim > 1 else []
        counts, strides = self.counts[(*lines, digit)], self.strides[(*lines, digit)]
        now = numbers // strides % counts
        after = np.where(to >= 0, to, now + by)
        stays = (after < 0) | (after >= counts)
        found: np.ndarray = numbers + np.where(stays, 0, after - now) * strides
        return found

    def successors(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Numbers int64 [B, NUM_ACTIONS] of the schedules after every action; `rows`, int32 [B, ROW], are those of `numbers`."""
        counts, strides = self.counts[..., :HEADER], self.strides[..., :HEADER]
        header, cells = rows[:, :HEADER], rows[:, HEADER:, None]
        moves = np.zeros((len(rows), NUM_ACTIONS), np.int64)
        moves[:, 1:_PLACE:2] = np.where(header + 1 < counts, strides, 0)
        moves[:, 2:_PLACE:2] = np.where(header > 0, -strides, 0)
        there = _LEVELS < self.counts[..., HEADER:, None]
        placed = np.where(there, (_LEVELS - cells) * self.strides[..., HEADER:, None], 0)
        moves[:, _PLACE:] = placed.reshape(len(rows), NUM_ACTIONS - _PLACE)
        return numbers[:, None] + moves
