"""The schedule of a row nest (a fused operator as loops over rows and columns).

It is an array of int32 with named fields, and the state of the decision process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from gensor_gym.gir.placement import Level, Placement
from gensor_gym.rows.fields import Field, FieldSchedule

FIELDS = (
    Field("vector", (1, 4, 8, 16), "elements of a row that one instruction works on"),
    Field("tile", (1, 2, 4, 8), "vectors side by side in one step along the columns"),
    Field("rows", (1, 2, 4, 8), "rows that one step works on together, interleaved"),
    Field("loop", (1, 4, 16, 64, 256, 1024, 4096), "steps of rows that one task does one after another"),
    Field("streaming", (0, 1), "1: outputs are stored past the caches"),
)
"""Fields of a schedule before the memory levels.

`loop` is IntelliGen's number of loops; `loop` and `rows` determine its number of parallel instances.
"""
HEADER = len(FIELDS)
MOST_PLACED = 16
"""Most values that several passes over a row read, and for which a schedule therefore chooses a memory level."""
ROW = HEADER + MOST_PLACED


class GirSchedule(FieldSchedule):
    """An immutable schedule of a fused operator, stored as a row of int32.

    The row has the index of each field's value (vector, tile, rows, loop, streaming), then a memory level for every value that
    several passes read. Equal rows are equal schedules.
    """

    __slots__ = ()
    length, fields = ROW, FIELDS
    tops = np.array([*(len(field.values) - 1 for field in FIELDS), *(len(Level) - 1 for _ in range(MOST_PLACED))], np.int32)

    def placement(self, count: int) -> Placement:
        """Return the memory levels of the first `count` placed values."""
        return tuple(Level(int(level)) for level in self.row[HEADER : HEADER + count])

    def __str__(self) -> str:
        """Return the schedule as one line of text that `parse` reads; trailing values in DRAM are omitted."""
        levels = [level.name.lower() for level in self.placement(MOST_PLACED)]
        while levels and levels[-1] == Level.DRAM.name.lower():
            levels.pop()
        return f"{super().__str__()} place={','.join(levels) or 'dram'}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a schedule from the text `str(schedule)`; ValueError names the unreadable part.

        A field that the text lacks gets the first of its values in `FIELDS`, and a value without a level is in DRAM.
        """
        given = cls.words(text, "[a-z,]+", " place=sram,reg")
        levels = given.pop("place", "dram").split(",")
        return cls(make_schedule(given, levels).row)


def make_schedule(fields: Mapping[str, int | str], levels: Sequence[str | Level] = ()) -> GirSchedule:
    """Make a schedule from the values of its fields, and the memory levels of the values that several passes over a row read.

    A field that is not given gets the first of its values in `FIELDS`, and a value without a level is in DRAM. ValueError names
    an unknown field, value or level.
    """
    row = GirSchedule.row_of(fields)
    if len(levels) > MOST_PLACED:
        raise ValueError(f"{len(levels)} levels, expected at most {MOST_PLACED}")
    for place, level in enumerate(levels):
        word = level.name if isinstance(level, Level) else str(level).upper()
        if word not in Level.__members__:
            raise ValueError(f"level {level!r}: expected one of {', '.join(one.lower() for one in Level.__members__)}")
        row[HEADER + place] = Level[word]
    return GirSchedule(row)
