"""The legal programs of a graph as vectors of choices, one choice for each column (see `agents.core.columns`).

A choice of an axis is its whole chain of tiles and virtual threads; a *place* of a column is one number in it. Neighbours
along a place are found by the logarithm of sizes: the choice that has another number there and changes least elsewhere.
"""

from __future__ import annotations

import math

import numpy as np

from agents.core.columns import Columns
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.layout import KNOB
from gensor_gym.graph.schedule import Schedule

BLOCK = 4096
"""Vectors drawn at a time."""
BLOCKS = 256
"""Blocks without a single legal program, after which a random walk takes the place of the uniform draw."""
LISTED = 1 << 18
"""Candidates up to which a space is listed."""

Direction = tuple[int, int, int]
"""A column, a place in it, and how many distinct numbers up (or, below zero, down)."""


class Programs:
    """The space of one graph: C columns, of which every legal program is a vector int64 [C]."""

    def __init__(self, graph: ConstructionGraph) -> None:
        """List the columns."""
        self.graph = graph
        self._columns = Columns(graph)
        self.moves = self._columns.moves
        self.counts = np.array([len(values) for _, _, values in self.moves], dtype=np.int64)
        self.logs = [values * 1.0 if at >= KNOB else np.log2(values) for at, _, values in self.moves]
        """Of every column its numbers as they are compared, float64 [choices, places]."""
        self.places = [(c, p) for c, logs in enumerate(self.logs) for p in range(logs.shape[1]) if np.ptp(logs[:, p]) > 0]
        """(column, place) wherever choices differ."""
        self.candidates = math.prod(self.counts.tolist())
        """Vectors there are, legal or not."""
        self._base = self._columns.opened(graph.initial().row)

    def rows(self, vectors: np.ndarray) -> np.ndarray:
        """Rows int32 [N, ROW] of vectors int64 [N, C]."""
        rows = np.repeat(self._base[None], len(vectors), axis=0)
        for column, (start, step, values) in enumerate(self.moves):
            rows[:, start : start + step * values.shape[1] : step] = values[vectors[:, column]]
        return rows

    def vector(self, schedule: Schedule) -> np.ndarray | None:
        """The vector int64 [C] of a schedule; None where the space does not have it."""
        row = self._columns.opened(schedule.row)
        found = np.empty(len(self.moves), dtype=np.int64)
        for column, (start, step, values) in enumerate(self.moves):
            same = np.flatnonzero((values == row[start : start + step * values.shape[1] : step]).all(axis=1))
            if not len(same):
                return None
            found[column] = same[0]
        return found if np.array_equal(self.rows(found[None])[0], row) else None

    def legal(self, vectors: np.ndarray) -> np.ndarray:
        """Which vectors [N, C] are legal programs, bool [N]."""
        return self.graph.fits(self.rows(vectors))

    def schedule(self, vector: np.ndarray) -> Schedule:
        """The program of a vector [C], all levels opened."""
        return Schedule(self.rows(vector[None])[0])

    def uniform(self, rng: np.random.Generator) -> Schedule:
        """A legal program, each as likely as any other: vectors drawn until one is legal.

        Where of a million vectors none is legal it is the end of a random walk, which is not uniform.
        """
        for _ in range(BLOCKS):
            vectors = rng.integers(0, self.counts, size=(BLOCK, len(self.counts)))
            if len(good := np.flatnonzero(self.legal(vectors))):
                return self.schedule(vectors[good[0]])
        return Schedule(self._columns.opened(self.graph.random_schedule(rng).row))

    def listed(self) -> np.ndarray | None:
        """All legal programs, rows int32 [N, ROW]; None where there are too many candidates to list."""
        if self.candidates > LISTED:
            return None
        return np.concatenate([self.graph.stack([]), *self.graph.enumerate()])

    def moved(self, vector: np.ndarray, direction: Direction) -> np.ndarray | None:
        """The vector after a move; None where the place has no such number. It may be illegal."""
        column, place, steps = direction
        logs = self.logs[column]
        now = logs[vector[column]]
        numbers = np.unique(logs[:, place])
        at = int(np.searchsorted(numbers, now[place])) + steps
        if not 0 <= at < len(numbers):
            return None
        wanted = now.copy()
        wanted[place] = numbers[at]
        found = vector.copy()
        found[column] = nearest(np.where(logs[:, [place]] == numbers[at], logs, np.inf), wanted)
        return found


def nearest(logs: np.ndarray, wanted: np.ndarray) -> int:
    """The choice [choices, places] that is nearest to the numbers wanted [places], in the sum of distances."""
    return int(np.argmin(np.abs(logs - wanted).sum(axis=1)))
