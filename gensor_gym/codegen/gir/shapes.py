"""Shapes of the steps in which a row nest's kernel computes its rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """Part of a pass along the columns: `count` iterations of `tile` vectors each, from column `start` on."""

    start: int
    count: int
    tile: int
    lanes: int | None = None
    """Number of valid lanes, if this is a single, incomplete vector; else None."""


@dataclass(frozen=True)
class RowShape:
    """Shape of a step of rows: rows, vectors per row, lanes per vector, and whether stores bypass the caches."""

    rows: int
    tile: int
    vector: int
    streaming: bool

    @property
    def across(self) -> int:
        """Number of rows of a vector."""
        return 1

    @property
    def along(self) -> int:
        """Number of columns of a vector."""
        return self.vector

    def steps(self, columns: int) -> list[Step]:
        """Divide a pass over `columns` columns into whole tiles, then single vectors, then an incomplete vector."""
        wide = self.tile * self.along
        tiles, vectors = columns // wide, columns % wide // self.along
        rest = columns % self.along
        found = [Step(0, tiles, self.tile), Step(tiles * wide, vectors, 1), Step(columns - rest, int(rest > 0), 1, rest)]
        return [step for step in found if step.count]


@dataclass(frozen=True)
class AcrossShape(RowShape):
    """Shape of a step: vectors of rows side by side, and lanes per vector. A tile is one column."""

    @property
    def across(self) -> int:
        """Number of rows of a vector."""
        return self.vector

    @property
    def along(self) -> int:
        """Number of columns of a vector."""
        return 1
