"""A schedule of a chain of two products (attention) on a GPU: a row of int32 with named fields."""

from __future__ import annotations

import numpy as np

from gensor_gym.rows.fields import Field, FieldSchedule

FIELDS = (
    Field("warps", (1, 2, 4, 8, 12), "warps of a block that multiply, each with rows of its own"),
    Field("heights", (1, 2), "instructions along the rows of a warp, 16 rows each"),
    Field("keys", (16, 32, 64, 128, 192), "columns of the scores that a block computes at a time"),
    Field("stages", (1, 2, 3, 4), "buffers in shared memory for tiles of both right operands"),
    Field("hold", (0, 1), "1: a warp keeps its rows of the left operand in registers; 0: it loads them for every tile of keys"),
    Field("tensor", (1, 2), "tensor cores by 1 mma.sync; 2 wgmma, with copies by a warpgroup of their own (sm_90)"),
    Field("overlap", (0, 1, 2), "1: the second product of a tile of keys runs while the next scores become weights (wgmma); "
          "2: and warpgroups take turns to issue products"),
)  # fmt: skip
MMA_MOST = {"warps": 8, "keys": 128}
"""Largest values of some fields with mma.sync; only wgmma takes larger ones."""
ROW = len(FIELDS)
TOPS = np.array([len(field.values) - 1 for field in FIELDS], np.int32)
"""Index of the last value of each field."""


class GpuChainSchedule(FieldSchedule):
    """An immutable schedule of a chain on a GPU: a row of int32 with, for each field, the index of its value.

    Schedules with equal rows are equal.
    """

    __slots__ = ()
    length, fields, tops = ROW, FIELDS, TOPS
