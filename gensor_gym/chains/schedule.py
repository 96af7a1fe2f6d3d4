"""A schedule of a chain of two products (attention) on a CPU: a row of int32 with named fields."""

from __future__ import annotations

import numpy as np

from gensor_gym.rows.fields import Field, FieldSchedule

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
ROW = len(FIELDS)
TOPS = np.array([len(field.values) - 1 for field in FIELDS], np.int32)
"""Index of the last value of each field."""


class ChainSchedule(FieldSchedule):
    """An immutable schedule of a chain on a CPU: a row of int32 with, for each field, the index of its value.

    Schedules with equal rows are equal.
    """

    __slots__ = ()
    length, fields, tops = ROW, FIELDS, TOPS
