"""A schedule of a convolution by Winograd's algorithm on a CPU: a row of int32 with named fields."""

from __future__ import annotations

import numpy as np

from gensor_gym.rows.fields import Field, FieldSchedule

FIELDS = (
    Field("height", (1, 2, 4, 6, 8, 12, 14), "image tiles in a product's register tile"),
    Field("vectors", (1, 2, 3, 4), "vectors of output channels side by side in a product's register tile: a panel"),
    Field("block", (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512), "image tiles whose points a thread keeps at the same time"),
    Field("panels", (1, 2, 4, 8, 16, 64), "panels of output channels whose sums a thread keeps at the same time"),
    Field("apart", (0, 1), "1: a task has one group of panels, so a core reads fewer filters, but transforms image tiles again"),
)  # fmt: skip
ROW = len(FIELDS)
TOPS = np.array([len(field.values) - 1 for field in FIELDS], np.int32)
"""Index of the last value of each field."""


class WinogradSchedule(FieldSchedule):
    """An immutable schedule of a convolution by Winograd's algorithm: a row of int32 with the index of each field's value.

    Schedules with equal rows are equal.
    """

    __slots__ = ()
    length, fields, tops = ROW, FIELDS, TOPS
