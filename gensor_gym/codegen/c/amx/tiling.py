"""Which register tiles are multiplied in the tile registers of x86 (AMX), and how their rows are divided among registers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_gym.codegen.c.text import ceil_div
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import ITEM_BYTES, Operator

ROWS, ROW_BYTES, LANES = 16, 64, 16
"""Rows of a tile register, bytes of a row, and lanes of its row of 32-bit sums (Intel 64 manual, volume 1, chapter 18)."""
MOST_SUMS = 4
"""Most tiles of sums. Of eight registers, two more hold rows of the scalar operand, and two columns of the other."""


@dataclass(frozen=True)
class Tiling:
    """Division of a register tile: `parts` of its rows as (first row, number of rows), which lie along `axis`."""

    parts: tuple[tuple[int, int], ...]
    axis: int
    """Axis along which the rows of a part are neighbours; -1 for a single row."""
    step: int
    """Elements of the reduction that a tile holds."""


def tiling(op: Operator, hardware: Hardware, register: tuple[int, ...], vector: int, group: int, whole: bool) -> Tiling | None:
    """Return how register tiles of sizes `register` [A] are multiplied in tile registers; None if they are not.

    All rows must multiply the same columns. `group` is the reduction axis whose elements are multiplied in groups. If `whole`,
    tiles must have no rests along it and along the lanes.
    """
    width, step = register[vector], ROW_BYTES // ITEM_BYTES[op.dtype]
    if group in (-1, vector) or op.dtype not in dict(hardware.tensor_peak) or hardware.lanes != LANES or width % LANES:
        return None
    rest = op.extents[group] % step or op.extents[vector] % LANES
    if op.extents[group] < step or (whole and rest):
        return None
    axes = [a for a in op.spatial if a != vector and register[a] > 1]
    if any(row[a] for row in op.reads[1].coefficients for a in axes):
        return None
    size = register[axes[-1]] if axes else 1
    outer, pieces = math.prod(register[a] for a in axes) // size, ceil_div(size, ROWS)
    longest = ceil_div(size, pieces)
    if outer * pieces * (width // LANES) > MOST_SUMS or (pieces > 2 and size % pieces):
        return None  # two registers hold the rows of the parts in turn, so every other part has equally many
    starts = [(size * o + begin, min(longest, size - begin)) for o in range(outer) for begin in range(0, size, longest)]
    return Tiling(tuple(starts), axes[-1] if axes else -1, step)
