"""Coordinates of a task's programs: each coordinate (column) is a knob, or the tiles of all levels of an axis.

An action changes one tile of one level, whose size must stay a multiple of the tile below: to go from a register tile of 16 rows
to 12 rows, all outer tiles must shrink first. A column changes as a whole. A program with a tile for every level is a *vector*:
the index of one value for each column. The *number* of a program is the vector read as digits in mixed radix; the first column
varies fastest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from gensor_gym.graph.actions import KNOB_UP, VTHREAD_UP
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.ladder import divisors
from gensor_gym.graph.tables.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import ALLOWED, EXTENT, IS_CPU, KNOB_BITS, NUM_LEVELS, SIZE_START

CHAIN = MAX_LEVELS + 1
"""Number of entries that the column of an axis sets: the tiles of all levels, then the virtual threads."""


@dataclass(frozen=True, eq=False)
class Column:
    """One coordinate of a task's programs: a knob, or the tiles of all levels of an axis, with the possible values."""

    first: int
    """Index in a row of the first entry that the column sets: TILE + axis, or KNOB + knob."""
    values: np.ndarray
    """Possible values, int32 [choices, P]: tiles and virtual threads of an axis (P = CHAIN), or the index of a knob's value (P =
    1)."""

    @property
    def is_knob(self) -> bool:
        """Whether the column is a knob. Other columns belong to axes."""
        return self.first >= KNOB

    @property
    def places(self) -> slice:
        """Slice of the entries of a schedule's row that the column sets."""
        return slice(self.first, self.first + MAX_AXES * self.values.shape[1], MAX_AXES)

    @property
    def smallest(self) -> int:
        """Index of the smallest value: of a knob the first value, of an axis the tiles with the smallest product.

        Products are float64, because the product of a long axis's sizes exceeds an int64.
        """
        return 0 if self.is_knob else int(np.argmin(np.prod(self.values, axis=1, dtype=np.float64)))

    def only(self, kept: np.ndarray) -> Column:
        """Return the column with only the values `kept`, given as indices or as bool [choices]."""
        return Column(self.first, self.values[kept])

    def every(self, row: np.ndarray) -> np.ndarray:
        """Return copies of a row [ROW], one for each value of the column, int32 [choices, ROW]."""
        rows = np.repeat(row[None], len(self.values), axis=0)
        rows[:, self.places] = self.values
        return rows


class Coordinates:
    """A set of programs that differ in the given columns: each program is a vector with one value index per column.

    All other entries stay as in `base`, a row [ROW] with tiles for all memory levels.
    """

    def __init__(self, base: np.ndarray, columns: Sequence[Column]) -> None:
        """Keep the K columns in which the programs differ from `base`, in the order of a vector's components."""
        self.base, self.columns = base, tuple(columns)
        self.counts = np.array([len(column.values) for column in self.columns], dtype=np.int64)
        """Number of values of every column, int64 [K]."""
        self.size = math.prod(self.counts.tolist())
        """Number of programs that the columns span, legal or not."""

    def movable(self, fixed: Collection[int] = ()) -> list[Column]:
        """Return the columns with more than one value, except those whose `first` entry is in `fixed`."""
        return [column for column in self.columns if len(column.values) > 1 and column.first not in fixed]

    def moving(self, knobs: Collection[int]) -> Coordinates:
        """Return the coordinates with all their axes, but only those knobs whose indices are in `knobs`."""
        return Coordinates(self.base, [c for c in self.columns if not c.is_knob or c.first - KNOB in knobs])

    def rows(self, vectors: np.ndarray) -> np.ndarray:
        """Return the programs of the vectors int64 [N, K] as rows int32 [N, ROW]. They may be illegal."""
        rows = np.repeat(self.base[None], len(vectors), axis=0)
        for column, chosen in zip(self.columns, vectors.T, strict=True):
            rows[:, column.places] = column.values[chosen]
        return rows

    def vector_of(self, row: np.ndarray) -> np.ndarray | None:
        """Return the vector int64 [K] of a program, or None if no vector gives it.

        The program is a row [ROW]; its level under construction does not matter.
        """
        row = row.copy()
        row[LEVEL] = self.base[LEVEL]
        same = [(column.values == row[column.places]).all(axis=1) for column in self.columns]
        if not all(map(np.any, same)):
            return None
        found = np.array([np.argmax(choice) for choice in same], dtype=np.int64)
        return found if np.array_equal(self.rows(found[None])[0], row) else None

    def numbers(self, vectors: np.ndarray) -> np.ndarray:
        """Return the number of each of N vectors [N, K], which are read as digits in mixed radix, int64 [N].

        `size`, the number of all vectors, must fit in 64 bits.
        """
        radix = np.cumprod(np.concatenate([[1], self.counts]))[:-1]
        return (vectors * radix.astype(np.int64)).sum(axis=1).astype(np.int64)

    def vectors(self, numbers: np.ndarray) -> np.ndarray:
        """Return the vectors int64 [N, K] of numbers int64 [N]; the inverse of `numbers`."""
        if not self.columns:
            return np.empty((len(numbers), 0), dtype=np.int64)
        return np.stack(np.unravel_index(numbers, self.counts, order="F"), axis=1)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw `count` vectors uniformly, int64 [count, K], legal or not."""
        drawn = [rng.integers(choices, size=count) for choices in self.counts.tolist()]
        return np.array(drawn, dtype=np.int64).reshape(len(drawn), count).T

    @cached_property
    def packed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the K columns as arrays (places, offsets, values) for compiled code.

        `places` int64 [K, CHAIN] are the entries of a row that each column sets. Column k has the values
        values[offsets[k]:offsets[k + 1]]; offsets are int64 [K + 1], values int32 [choices of all columns, CHAIN]. A knob repeats
        its single entry CHAIN times.
        """
        places = [np.full(CHAIN, c.first) if c.is_knob else np.arange(CHAIN) * MAX_AXES + c.first for c in self.columns]
        values = [np.broadcast_to(column.values, (len(column.values), CHAIN)) for column in self.columns]
        empty = np.empty((0, CHAIN), dtype=np.int32)
        offsets = np.cumsum([0, *self.counts]).astype(np.int64)
        return np.array(places, dtype=np.int64).reshape(-1, CHAIN), offsets, np.concatenate([empty, *values])


@lean
def set_column(row, column, choice, places, values):  # noqa: ANN001, ANN201
    """Write one value of a column into a row.

    `column` and `choice` are indices into the arrays `places` and `values` of `Coordinates.packed`.
    """
    for i in range(CHAIN):
        row[places[column, i]] = values[choice, i]


def columns_of(ints: np.ndarray, sizes: np.ndarray) -> list[Column]:
    """Return the columns of a task: every axis slot, then every knob that the space varies, with its usable values."""
    axes = [Column(TILE + axis, _values_of(ints, sizes, axis)) for axis in range(MAX_AXES)]
    knobs = [Column(KNOB + knob, np.array(usable_values(ints, knob), dtype=np.int32)[:, None]) for knob in moved_knobs(ints)]
    return axes + knobs


def moved_knobs(ints: np.ndarray) -> list[int]:
    """Return the indices of the knobs that actions of the space change."""
    return [knob for knob in range(len(KNOBS)) if ints[ALLOWED + KNOB_UP + knob]]


def usable_values(ints: np.ndarray, knob: int) -> list[int]:
    """Return the indices of those values of a knob that the operator can use."""
    return [i for i in range(len(KNOBS[knob].values)) if int(ints[KNOB_BITS + knob]) >> i & 1]


def opened(rows: np.ndarray, ints: np.ndarray) -> np.ndarray:
    """Return the programs of `rows` as rows [.., ROW] whose outermost memory level is under construction.

    Such a row has a tile for every memory level.
    """
    rows = rows.copy()
    rows[..., LEVEL] = ints[NUM_LEVELS] - 1
    return rows


def _values_of(ints: np.ndarray, sizes: np.ndarray, axis: int) -> np.ndarray:
    """Return the possible tiles of an axis at all levels, with virtual threads, int32 [choices, CHAIN]."""
    ladder = sizes[ints[SIZE_START + axis] : ints[SIZE_START + axis + 1]]
    virtual = (
        ints[IS_CPU] == 0 and axis < SPATIAL_SLOTS and ints[ALLOWED + VTHREAD_UP + axis] and ints[EXTENT + axis] > 1
    )
    return _chains(tuple(ladder.tolist()), int(ints[NUM_LEVELS]), bool(virtual))


@lru_cache(maxsize=64)
def _chains(ladder: tuple[int, ...], levels: int, virtual: bool) -> np.ndarray:
    """Return all combinations of an axis's tiles and virtual threads, int32 [choices, CHAIN].

    Each tile is a multiple of the tile before; the number of virtual threads divides the first. A large extent has tens of
    thousands of combinations. They are cached, because most axes of a network's operators share a few extents.
    """
    sizes = np.array(ladder, dtype=np.int32)
    chains = sizes[:, None]
    for _ in range(1, levels):
        chain, size = np.nonzero(sizes % chains[:, -1:] == 0)
        chains = np.column_stack([chains[chain], sizes[size]])
    threads = {size: divisors(size) if virtual else (1,) for size in ladder}
    of_each = [threads[size] for size in chains[:, 0].tolist()]
    places = [min(level, levels - 1) for level in range(MAX_LEVELS)]
    padded = np.repeat(chains[:, places], [len(some) for some in of_each], axis=0)
    found = np.column_stack([padded, np.concatenate(of_each)]).astype(np.int32)
    found.setflags(write=False)
    return found
