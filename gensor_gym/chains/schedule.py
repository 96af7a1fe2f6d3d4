"""A schedule of a chain: a row of int32 with names."""

from __future__ import annotations

import re

import numpy as np

from gensor_gym.gir.schedule import Field
from gensor_gym.registry import near

FIELDS = (
    Field("vector", (4, 8, 16), "elements of a row that one instruction works on"),
    Field("height", (1, 2, 4, 6, 8, 12, 14), "rows of a product's register tile"),
    Field("first", (1, 2, 3, 4), "vectors side by side in the first product's register tile"),
    Field("second", (1, 2, 3, 4), "vectors side by side in the second product's register tile"),
    Field("block", (1, 8, 16, 24, 32, 64, 128), "rows whose scores a thread keeps before it goes on to the second product"),
    Field("loop", (1, 4, 16, 64), "blocks that one task does one after another, with what it copied"),
    Field("copy", (0, 1), "1: both right operands are copied side by side; 0: only what cannot be read in place"),
    Field("depth", (0, 128), "steps of a sum that are added to the tile at a time, 0 for all: so many rows of the right operand "
          "stay in the first-level cache"),
    Field("rows", (1, 2, 4), "rows that the nest between works on together"),
    Field("tile", (1, 2, 4), "vectors side by side in one step of the nest"),
)  # fmt: skip
FIELD_INDEX = {field.name: index for index, field in enumerate(FIELDS)}
ROW = len(FIELDS)
TOPS = np.array([len(field.values) - 1 for field in FIELDS], np.int32)
"""The last index of each field."""


class ChainSchedule:
    """An immutable row: an index of each field's values. Equal when the rows are."""

    __slots__ = ("row",)
    row: np.ndarray

    def __init__(self, row: np.ndarray) -> None:
        """Copy `row`, int32 [ROW]; ValueError for another shape, what is no whole number or an index that is none."""
        row = np.asarray(row)
        if row.shape != (ROW,) or row.dtype.kind not in "iu" or ((row < 0) | (row > TOPS)).any():
            raise ValueError(f"row {row.tolist()}: expected {ROW} indices from 0 to {TOPS.tolist()}")
        row = np.array(row, dtype=np.int32)
        row.setflags(write=False)
        object.__setattr__(self, "row", row)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: schedules are values."""
        raise AttributeError("a schedule cannot be changed; an action returns a new one")

    def __reduce__(self) -> tuple[type[ChainSchedule], tuple[np.ndarray]]:
        """Pickle as the row."""
        return ChainSchedule, (np.array(self.row),)

    def value(self, name: str) -> int:
        """Value of a field."""
        index = FIELD_INDEX[name]
        return FIELDS[index].values[int(self.row[index])]

    @property
    def key(self) -> bytes:
        """Identity of the schedule."""
        return self.row.tobytes()

    def __eq__(self, other: object) -> bool:
        """Rows are equal."""
        return isinstance(other, ChainSchedule) and self.key == other.key

    def __hash__(self) -> int:
        """Hash of the key."""
        return hash(self.key)

    def __str__(self) -> str:
        """One line that `parse` reads back."""
        return " ".join(f"{field.name}={self.value(field.name)}" for field in FIELDS)

    def __repr__(self) -> str:
        """`ChainSchedule.parse('...')`."""
        return f"ChainSchedule.parse({str(self)!r})"

    @classmethod
    def parse(cls, text: str) -> ChainSchedule:
        """Read `str(schedule)`; fields not named stand at their first value. ValueError says what did not read."""
        words = [word.partition("=")[::2] for word in text.split()] if isinstance(text, str) else [("", "")]
        if any(not re.fullmatch("[0-9]{1,9}", value) for _, value in words) or len(dict(words)) != len(words):
            example = " ".join(f"{field.name}={field.values[0]}" for field in FIELDS)
            raise ValueError(f"not a schedule: {str(text)[:200]!r}; expected each name once, such as {example!r}")
        row = np.zeros(ROW, np.int32)
        for name, value in words:
            if name not in FIELD_INDEX:
                raise ValueError(f"no field {name!r}; fields are {', '.join(FIELD_INDEX)}{near(name, FIELD_INDEX)}")
            values = FIELDS[FIELD_INDEX[name]].values
            if int(value) not in values:
                raise ValueError(f"{name}={value}: expected one of {', '.join(map(str, values))}")
            row[FIELD_INDEX[name]] = values.index(int(value))
        return cls(row)
