"""Schedules that consist of named fields, such as a block size, and the actions that change a field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from gensor_gym.registry import near
from gensor_gym.rows.schedule import RowSchedule


@dataclass(frozen=True)
class Field:
    """A named number of a schedule, such as a block size: its values in increasing order, and its description."""

    name: str
    values: tuple[int, ...]
    meaning: str


@dataclass(frozen=True)
class FieldAction:
    """An action of a graph: `stop`, or `raise` or `lower` of the field named `target`."""

    primitive: str
    target: str = ""

    def __str__(self) -> str:
        """Return text such as `raise block`."""
        return f"{self.primitive} {self.target}".strip()


def names_of_moves(fields: Sequence[Field]) -> list[tuple[str, str]]:
    """Return (primitive, field) of each action of `step_fields`, in the order in which the actions follow `stop`."""
    return [(word, field.name) for field in fields for word in ("raise", "lower")]


def step_fields(found: np.ndarray, tops: np.ndarray) -> np.ndarray:
    """Apply `raise` and `lower` of every field to copies of schedules in place, and return the array.

    `found` int32 [B, N, ROW] has N copies of each row. `found[:, 0]` is for `stop`; the next 2 * fields copies are for `raise`
    and `lower` of each field. `tops` int32 [fields] are the last indices; an index that would leave its range stays.
    """
    for place, top in enumerate(tops):
        found[:, 1 + 2 * place, place] = np.minimum(found[:, 0, place] + 1, top)
        found[:, 2 + 2 * place, place] = np.maximum(found[:, 0, place] - 1, 0)
    return found


class FieldSchedule(RowSchedule):
    """Base class of schedules that consist of named fields: a row of numbers that begins with the index of each field's value."""

    __slots__ = ()
    fields: ClassVar[tuple[Field, ...]]
    tops: ClassVar[np.ndarray]
    """Last index that each number of a row may have, int32 [length]."""
    places: ClassVar[dict[str, int]]
    """Name of a field -> its index in the row."""
    known: ClassVar[dict[str, np.ndarray]]
    """Name of a field -> its values, int64 [values]."""

    def __init_subclass__(cls) -> None:
        """Fill the class attributes `places` and `known` of a subclass from its `fields`."""
        cls.places = {field.name: place for place, field in enumerate(cls.fields)}
        cls.known = {field.name: np.array(field.values) for field in cls.fields}

    def __init__(self, row: np.ndarray) -> None:
        """Copy `row`, int32 [length]. ValueError for another shape, a fraction or an index out of range."""
        row = np.asarray(row)
        if row.shape != (self.length,) or row.dtype.kind not in "iu":
            raise ValueError(f"a schedule is a row of {self.length} int32 values, got {row.dtype} of shape {row.shape}")
        if ((row < 0) | (row > self.tops)).any():
            raise ValueError(f"row {row.tolist()}: expected indices from 0 to below {(self.tops + 1).tolist()}")
        super().__init__(row)

    def value(self, name: str) -> int:
        """Return the value of a field, by its name."""
        place = self.places[name]
        return self.fields[place].values[int(self.row[place])]

    def __str__(self) -> str:
        """Return the schedule as one line of text: `name=value` of every field."""
        return " ".join(f"{field.name}={self.value(field.name)}" for field in self.fields)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a schedule from the text `str(schedule)`; ValueError names the unreadable part.

        A field that the text lacks gets the first of its values.
        """
        return cls(cls.row_of(cls.words(text)))

    @classmethod
    def columns(cls, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values int64 [B] of every field, by name, in schedules given as rows int32 [B, ROW]."""
        return {name: cls.known[name][rows[:, place]] for name, place in cls.places.items()}

    @classmethod
    def next_below(cls, name: str, values: np.ndarray) -> np.ndarray:
        """Return the next lower value of a field for each of `values`; the first value stays."""
        found: np.ndarray = cls.known[name][np.maximum(np.searchsorted(cls.known[name], values) - 1, 0)]
        return found

    @classmethod
    def words(cls, text: str, more: str = "(?!)", example: str = "") -> dict[str, str]:
        """Return the values in a text `name=value ..` by name.

        Values are numbers or match the pattern `more`. ValueError for another text: its message shows a correct text, which ends
        with `example`.
        """
        pairs = [word.partition("=")[::2] for word in text.split()] if isinstance(text, str) else [("", "")]
        if any(not re.fullmatch(f"[0-9]{{1,9}}|{more}", value) for _, value in pairs) or len(dict(pairs)) != len(pairs):
            first = " ".join(f"{field.name}={field.values[0]}" for field in cls.fields)
            shown = str(text) if len(str(text)) <= 200 else f"{str(text)[:200]}.."
            raise ValueError(f"not a schedule: {shown!r}; expected each name once, such as '{first}{example}'")
        return dict(pairs)

    @classmethod
    def row_of(cls, values: Mapping[str, int | str]) -> np.ndarray:
        """Return a row int32 [length] with the values of fields given by name, and all other numbers 0.

        ValueError names an unknown field or value.
        """
        row = np.zeros(cls.length, np.int32)
        for name, value in values.items():
            if name not in cls.places:
                raise ValueError(f"no field {name!r}; fields are {', '.join(cls.places)}{near(name, cls.places)}")
            known = cls.fields[cls.places[name]].values
            if not str(value).isdigit() or int(value) not in known:
                raise ValueError(f"{name}={value}: expected one of {', '.join(map(str, known))}")
            row[cls.places[name]] = known.index(int(value))
        return row
