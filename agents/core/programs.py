"""The legal programs of a graph as vectors of choices, one choice for each column (see `gensor_gym.graph.coordinates`).

A choice for an axis is a list of tile sizes and the number of virtual threads. A *place* is the position of one number in the
choices of a column. A neighbour along a place is a choice with another number at this place. Among such choices, it is the one
whose other numbers change least (in logarithms of sizes).
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
"""Largest number of candidates for which all programs of a space are enumerated."""

Direction = tuple[int, int, int]
"""A move of one number of a program: (column, position in it, number of steps).

Steps go through the distinct numbers at the position, positive upwards, negative downwards.
"""


class Programs(Coordinates):
    """The programs of one graph as vectors int64 [C], with the index of the chosen value for each of C columns.

    Columns are the tile sizes of an axis or a knob; those with a single choice are left out.
    """

    def __init__(self, graph: ConstructionGraph, fixed: Collection[int] = ()) -> None:
        """Take the graph's columns (tiles of an axis, or a knob), except those at the positions `fixed` of an encoded program."""
        super().__init__(graph.coordinates.base, graph.coordinates.movable(fixed))
        self.graph = graph

    @cached_property
    def logs(self) -> list[np.ndarray]:
        """Numbers of each column's choices, on the scale by which choices are compared (log2 for sizes), [choices, positions]."""
        return [column.values * 1.0 if column.is_knob else np.log2(column.values) for column in self.columns]

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """All (column, position in its choices) at which the choices of the column have different numbers."""
        return [(c, p) for c, logs in enumerate(self.logs) for p in range(logs.shape[1]) if np.ptp(logs[:, p]) > 0]

    def vector(self, schedule: Schedule) -> np.ndarray | None:
        """Return the vector int64 [C] of a schedule; None if the schedule is not in the space."""
        return self.vector_of(schedule.row)

    def opened(self, row: np.ndarray) -> np.ndarray:
        """Return the program of `row` as a row [ROW] that has a tile for every memory level."""
        return opened(row, self.graph.tables.ints)

    def legal(self, vectors: np.ndarray) -> np.ndarray:
        """Return whether each of the vectors [N, C] is a legal program, bool [N]."""
        return self.graph.fits(self.rows(vectors))

    def schedule(self, vector: np.ndarray) -> Schedule:
        """Return the schedule of a vector [C]; it has a tile for every memory level."""
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
        """Enumerate all legal programs as rows int32 [N, ROW]; None if the space has too many candidates."""
        if self.size > LISTED:
            return None
        return np.concatenate([self.graph.stack([]), *self.graph.enumerate()])

    def moved(self, vector: np.ndarray, direction: Direction) -> np.ndarray | None:
        """Return the vector after one move along `direction`, legal or not; None if the position has no further number that way.

        The other numbers of the column change as little as possible.
        """
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
        """Descend by the model from an encoded program `row` [ROW].

        The descent ends when no other choice for one column (the tiles of an axis, or a knob) is faster. Return (the last
        program, its model seconds).
        """
        row = self.opened(row)
        found = descend(row, self, self.graph.tables, sweeps=False)
        self.graph.charge(found.tried, found.improvements)
        return row, found.seconds

    def neighbours(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all legal programs [N, ROW] that differ from `row` in one axis or knob, and their model seconds [N]."""
        row = self.opened(row)
        rows = np.concatenate([row[None], *(column.every(row) for column in self.columns)])
        seconds = self.graph.latencies(rows)
        kept = np.isfinite(seconds) & (rows != row).any(axis=1)
        return rows[kept], seconds[kept]

    def other_register_tiles(self, row: np.ndarray) -> np.ndarray:
        """Return programs [N, ROW] with other innermost tiles of two spatial axes and as few other changes as possible.

        They may be illegal. Descents that change one axis or knob at a time do not reach such programs: on a CPU, the way from
        8x48 to 6x64 passes 6x48 or 8x64, both slower.
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
    """Return an axis's tile sizes for every innermost tile other than that of `row`; other numbers stay as near as possible."""
    now, sizes = np.log2(row[column.places]), column.values[:, 0]
    far = np.abs(np.log2(column.values) - now)[:, 1:].sum(axis=1)
    return [
        column.values[np.argmin(np.where(sizes == size, far, np.inf))] for size in np.unique(sizes) if size != row[column.first]
    ]


def nearest(logs: np.ndarray, wanted: np.ndarray) -> int:
    """Return the index of the choice in `logs` [choices, positions] with the smallest sum of distances to `wanted`."""
    return int(np.argmin(np.abs(logs - wanted).sum(axis=1)))
