"""A schedule as a value: an immutable row of int32."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np


class RowSchedule(ABC):
    """Base class of schedules: an immutable, hashable row of `length` numbers. Equal rows of one class are equal."""

    __slots__ = ("row",)
    row: np.ndarray
    length: ClassVar[int]

    def __init__(self, row: np.ndarray) -> None:
        """Copy `row`, int32 [length]. ValueError for another shape."""
        row = np.array(row, dtype=np.int32)
        if row.shape != (self.length,):
            raise ValueError(f"a schedule is a row of {self.length} int32 values, got shape {row.shape}")
        row.setflags(write=False)
        object.__setattr__(self, "row", row)

    def __setattr__(self, name: str, value: object) -> None:
        """Raise AttributeError, because schedules are immutable."""
        raise AttributeError("a schedule cannot be changed; an action returns a new one")

    def __reduce__(self) -> tuple[type[RowSchedule], tuple[np.ndarray]]:
        """Return class and row, from which pickle rebuilds the schedule."""
        return type(self), (np.array(self.row),)

    @property
    def key(self) -> bytes:
        """Bytes of the row, which identify the schedule within its class."""
        return self.row.tobytes()

    def __eq__(self, other: object) -> bool:
        """Return whether class and row are equal."""
        return type(other) is type(self) and self.key == other.key

    def __hash__(self) -> int:
        """Return the hash of `key`."""
        return hash(self.key)

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Read `str(schedule)`. ValueError names the unreadable part."""

    def __repr__(self) -> str:
        """Return text such as `Schedule.parse('...')`."""
        return f"{type(self).__name__}.parse({str(self)!r})"
