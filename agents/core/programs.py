"""The legal programs of a graph as vectors of choices, one choice for each column (see `gensor_gym.graph.coordinates`).

A choice for an axis is a whole chain of tiles and virtual threads. A *place* is the position of one number in the choices of a
column. A neighbour along a place is a choice with another number at this place. Among such choices, it is the one whose other
numbers change least (in logarithms of sizes).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from itertools import combinations, product

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.column_descent import descend
from gensor_gym.graph.coordinates import Column, Coordinates, opened
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import SPATIAL_SLOTS, TILE

BLOCK = 4096
"""Number of vectors drawn at a time."""
BLOCKS = 256
"""Number of blocks without a legal program after which a random walk replaces the uniform draw."""
LISTED = 1 << 18
"""Largest number of candidates of a space that is enumerated."""

Direction = tuple[int, int, int]
"""(column, position in it, number of steps through the distinct numbers there: positive upwards, negative downwards)."""


class Programs(Coordinates):
    """The space of one graph. C columns have several choices, and a program is a vector int64 [C] of choices."""

    def __init__(self, graph: ConstructionGraph, fixed: Collection[int] = ()) -> None:
        """Select the graph's columns, except those that begin at the positions `fixed` of a row."""
        super().__init__(graph.coordinates.base, graph.coordinates.movable(fixed))
        self.graph = graph

    @cached_property
    def logs(self) -> list[np.ndarray]:
        """For every column, its numbers on the scale of comparison (log2 of sizes), float64 [choices, positions]."""
        return [column.values * 1.0 if column.is_knob else np.log2(column.values) for column in self.columns]

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """(column, position) for every position at which the choices of a column differ."""
        return [(c, p) for c, logs in enumerate(self.logs) for p in range(logs.shape[1]) if np.ptp(logs[:, p]) > 0]

    def vector(self, schedule: Schedule) -> np.ndarray | None:
        """The vector int64 [C] of a schedule; None if it is not in the space."""
        return self.vector_of(schedule.row)

    def opened(self, row: np.ndarray) -> np.ndarray:
        """The program of a row as a row with a tile for every memory level."""
        return opened(row, self.graph.tables.ints)

    def legal(self, vectors: np.ndarray) -> np.ndarray:
        """Whether each of the vectors [N, C] is a legal program, bool [N]."""
        return self.graph.fits(self.rows(vectors))

    def schedule(self, vector: np.ndarray) -> Schedule:
        """The schedule of a vector [C], one choice per column. It has a tile for every memory level."""
        return Schedule(self.rows(vector[None])[0])

    def uniform(self, rng: np.random.Generator) -> Schedule:
        """Draw a legal program uniformly: vectors are drawn until one is legal.

        If none of a million vectors is legal, the result is the end of a random walk, which is not uniform.
        """
        for _ in range(BLOCKS):
            vectors = rng.integers(0, self.counts, size=(BLOCK, len(self.counts)))
            if len(good := np.flatnonzero(self.legal(vectors))):
                return self.schedule(vectors[good[0]])
        return Schedule(self.opened(self.graph.random_schedule(rng).row))

    def listed(self) -> np.ndarray | None:
        """All legal programs, rows int32 [N, ROW]; None if there are too many candidates to enumerate."""
        if self.size > LISTED:
            return None
        return np.concatenate([self.graph.stack([]), *self.graph.enumerate()])

    def moved(self, vector: np.ndarray, direction: Direction) -> np.ndarray | None:
        """The vector, legal or not, one step along `direction`; None if the place has no further number in this direction."""
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

    def descend(self, row: np.ndarray) -> tuple[np.ndarray, float]:
        """Descend from `row` [ROW] until no column improves it; return the final row and its model seconds."""
        row = self.opened(row)
        found = descend(row, self, self.graph.tables, sweeps=False)
        self.graph.charge(found.tried, found.improvements)
        return row, found.seconds

    def neighbours(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(legal programs [N, ROW] that differ from `row` in one column, their model seconds [N])."""
        row = self.opened(row)
        rows = np.concatenate([row[None], *(column.every(row) for column in self.columns)])
        seconds = self.graph.latencies(rows)
        kept = np.isfinite(seconds) & (rows != row).any(axis=1)
        return rows[kept], seconds[kept]

    def other_register_tiles(self, row: np.ndarray) -> np.ndarray:
        """Rows [N, ROW], legal or not, with other innermost tiles of two spatial axes and as few other changes as possible.

        Descents over single columns do not reach such rows: on a CPU, the way from 8x48 to 6x64 passes 6x48 or 8x64, both slower.
        """
        row = self.opened(row)
        spatial = [column for column in self.columns if column.first < TILE + SPATIAL_SLOTS]
        axes = [(column, _with_other_innermost(column, row)) for column in spatial]
        found = []
        for (one, its), (other, others) in combinations(axes, 2):
            for chain, beside in product(its, others):
                made = row.copy()
                made[one.places], made[other.places] = chain, beside
                found.append(made)
        return np.array(found, dtype=np.int32).reshape(-1, len(row))


def _with_other_innermost(column: Column, row: np.ndarray) -> list[np.ndarray]:
    """For every innermost tile other than the row's, the chain whose other numbers are nearest to the row's."""
    now, sizes = np.log2(row[column.places]), column.values[:, 0]
    far = np.abs(np.log2(column.values) - now)[:, 1:].sum(axis=1)
    return [
        column.values[np.argmin(np.where(sizes == size, far, np.inf))] for size in np.unique(sizes) if size != row[column.first]
    ]


def nearest(logs: np.ndarray, wanted: np.ndarray) -> int:
    """Index of the choice in `logs` [choices, places] with the smallest sum of distances to `wanted` [places]."""
    return int(np.argmin(np.abs(logs - wanted).sum(axis=1)))
