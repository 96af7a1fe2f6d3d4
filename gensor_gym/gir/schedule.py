"""A schedule of a row nest: one node of its decision process, a row of int32 with names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.gir.placement import Level, Placement
from gensor_gym.registry import near


@dataclass(frozen=True)
class Field:
    """One number of a schedule's header: its name, its values in order of growth, and what it is."""

    name: str
    values: tuple[int, ...]
    meaning: str


FIELDS = (
    Field("vector", (1, 4, 8, 16), "elements of a row that one instruction works on"),
    Field("tile", (1, 2, 4, 8), "vectors side by side in one step along the columns"),
    Field("rows", (1, 2, 4, 8), "rows that one step works on together, interleaved"),
    Field("loop", (1, 4, 16, 64, 256, 1024, 4096), "steps of rows that one task does one after another"),
    Field("streaming", (0, 1), "1: outputs are stored past the caches"),
)
"""The header. IntelliGen's number of loops is `loop`; its number of parallel instances follows from it and the rows."""
FIELD_INDEX = {field.name: index for index, field in enumerate(FIELDS)}
HEADER = len(FIELDS)
MOST_PLACED = 16
"""Crossing cells of a nest that a schedule has room for."""
ROW = HEADER + MOST_PLACED


class GirSchedule:
    """An immutable row: indices of the header's values, then a level for every crossing cell. Equal when the rows are."""

    __slots__ = ("row",)
    row: np.ndarray

    def __init__(self, row: np.ndarray) -> None:
        """Copy `row`, int32 [ROW]; ValueError for another shape, what is no whole number or an index that is none."""
        row = np.asarray(row)
        if row.shape != (ROW,) or row.dtype.kind not in "iu":
            raise ValueError(f"a schedule is a row of {ROW} int32 values, got {row.dtype} of shape {row.shape}")
        tops = [*(len(field.values) for field in FIELDS), *(len(Level) for _ in range(MOST_PLACED))]
        if ((row < 0) | (row >= tops)).any():
            raise ValueError(f"row {row.tolist()}: expected indices from 0 to below {tops}")
        row = np.array(row, dtype=np.int32)
        row.setflags(write=False)
        object.__setattr__(self, "row", row)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: schedules are values."""
        raise AttributeError("a schedule cannot be changed; an action returns a new one")

    def __reduce__(self) -> tuple[type[GirSchedule], tuple[np.ndarray]]:
        """Pickle as the row."""
        return GirSchedule, (np.array(self.row),)

    def value(self, name: str) -> int:
        """Value of a field of the header."""
        index = FIELD_INDEX[name]
        return FIELDS[index].values[int(self.row[index])]

    def placement(self, count: int) -> Placement:
        """Levels of the first `count` cells that are placed."""
        return tuple(Level(int(level)) for level in self.row[HEADER : HEADER + count])

    @property
    def key(self) -> bytes:
        """Identity of the schedule."""
        return self.row.tobytes()

    def __eq__(self, other: object) -> bool:
        """Rows are equal."""
        return isinstance(other, GirSchedule) and self.key == other.key

    def __hash__(self) -> int:
        """Hash of the key."""
        return hash(self.key)

    def __str__(self) -> str:
        """One line that `parse` reads back; trailing cells in DRAM are left out."""
        words = [f"{field.name}={self.value(field.name)}" for field in FIELDS]
        levels = [level.name.lower() for level in self.placement(MOST_PLACED)]
        while levels and levels[-1] == Level.DRAM.name.lower():
            levels.pop()
        return " ".join([*words, f"place={','.join(levels) or 'dram'}"])

    def __repr__(self) -> str:
        """`GirSchedule.parse('...')`."""
        return f"GirSchedule.parse({str(self)!r})"

    @classmethod
    def parse(cls, text: str) -> GirSchedule:
        """Read `str(schedule)`; fields not named stand at their first value. ValueError says what did not read."""
        words = [word.partition("=")[::2] for word in text.split()] if isinstance(text, str) else [("", "")]
        if any(not re.fullmatch(r"[0-9]{1,9}|[a-z,]+", value) for _, value in words) or len(dict(words)) != len(words):
            example = " ".join(f"{field.name}={field.values[0]}" for field in FIELDS)
            shown = str(text) if len(str(text)) <= 200 else f"{str(text)[:200]}.."
            raise ValueError(f"not a schedule: {shown!r}; expected each name once, such as '{example} place=sram,reg'")
        given = dict(words)
        levels = given.pop("place", "dram").split(",")
        return make_schedule(given, levels)


def make_schedule(fields: Mapping[str, int | str], levels: Sequence[str | Level] = ()) -> GirSchedule:
    """A schedule of named values and levels; the others stand at their first. ValueError names what there is not."""
    row = np.zeros(ROW, np.int32)
    for name, value in fields.items():
        if name not in FIELD_INDEX:
            raise ValueError(f"no field {name!r}; fields are {', '.join(FIELD_INDEX)}{near(name, FIELD_INDEX)}")
        values = FIELDS[FIELD_INDEX[name]].values
        if not str(value).isdigit() or int(value) not in values:
            raise ValueError(f"{name}={value}: expected one of {', '.join(map(str, values))}")
        row[FIELD_INDEX[name]] = values.index(int(value))
    if len(levels) > MOST_PLACED:
        raise ValueError(f"{len(levels)} levels, expected at most {MOST_PLACED}")
    for place, level in enumerate(levels):
        word = level.name if isinstance(level, Level) else str(level).upper()
        if word not in Level.__members__:
            raise ValueError(f"level {level!r}: expected one of {', '.join(one.lower() for one in Level.__members__)}")
        row[HEADER + place] = Level[word]
    return GirSchedule(row)
