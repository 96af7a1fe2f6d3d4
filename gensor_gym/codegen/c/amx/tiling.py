"""Which register tiles are multiplied in the tile registers of x86 (AMX), and how their rows are divided among registers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_gym.codegen.c.group import GROUPS
from gensor_gym.codegen.c.text import ceil_div
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import ITEM_BYTES, Operator

ROWS, ROW_BYTES, LANES = 16, 64, 16
"""Rows of a tile register, bytes of a row, and lanes of its row of 32-bit sums (Intel 64 manual, volume 1, chapter 18)."""
GROUP_BYTES, FEWEST_TAPS, FEWEST_GROUPS = 4, 3, 4
"""Bytes of a group of products that are added to one sum, fewest taps that are multiplied as a row of groups, and fewest groups
of channels in a row."""
MOST_SUMS = 4
"""Most tiles of sums. Of eight registers, two more hold rows of the scalar operand, and two columns of the other."""


@dataclass(frozen=True)
class Tiling:
    """Division of a register tile: `parts` of its rows as (first row, number of rows), which lie along `axis`.

    Parts of equal length may overlap.
    """

    parts: tuple[tuple[int, int], ...]
    axis: int
    """Axis along which the rows of a part are neighbours; -1 for a single row."""
    step: int
    """Elements of the reduction along the grouped axis that a row of the scalar operand's tile holds."""
    row_bytes: int = ROW_BYTES
    """Bytes of such a row."""
    taps: int = -1
    """Axis of a window whose taps are all in such a row, a group of channels each; -1 if the row has channels of one tap."""
    pixels: int = 0
    """Pixels of the register tile in each line of the image, if parts are multiplied across the ends of lines; else 0."""
    line: int = 0
    """Rows from a line of pixels to the next one then. Rows between them are multiplied in vain."""

    def place(self, row: int) -> int:
        """Return the number, among the rows of the parts, of a row of the register tile."""
        return row // self.pixels * self.line + row % self.pixels if self.pixels else row

    @property
    def rows(self) -> int:
        """Number of rows of the parts."""
        start, size = self.parts[-1]
        return start + size


def tiling(
    op: Operator, hardware: Hardware, tiles: tuple[tuple[int, ...], ...], vector: int, group: int, whole: bool, packed: bool
) -> Tiling | None:
    """Return how register tiles are multiplied in tile registers; None if they are not. `tiles` are of sizes [3, A].

    `packed` says that the scalar operand is copied. All rows must multiply the same columns. `group` is the reduction axis whose
    elements are multiplied in groups. If `whole`, tiles must have no rests along it. Channels that do not fill whole rows of a
    tile are multiplied in shorter rows (`channels_of_row`) or, with channels first, for all taps of a row of the window at once.
    """
    register = tiles[0]
    width, step, row_bytes, taps = register[vector], ROW_BYTES // ITEM_BYTES[op.dtype], ROW_BYTES, -1
    if group in (-1, vector) or op.dtype not in dict(hardware.tensor_peak) or hardware.lanes != LANES or width % LANES:
        return None
    if op.extents[group] < step or (whole and op.extents[group] % step):
        taps = _taps(op, tiles, group)
        is_last = op.reads[0].coefficients[-1][group] == 1 and not op.reads[1].coefficients[-1][vector]
        if taps >= 0:
            step, row_bytes = GROUPS[op.dtype], GROUP_BYTES * op.extents[taps]
        elif is_last and (step := channels_of_row(op.extents[group], op.dtype)):
            row_bytes = ITEM_BYTES[op.dtype] * step
        else:
            return None
    axes = [a for a in op.spatial if a != vector and register[a] > 1]
    if any(row[a] for row in op.reads[1].coefficients for a in axes):
        return None
    size = register[axes[-1]] if axes else 1
    outer, pieces = math.prod(register[a] for a in axes) // size, ceil_div(size, ROWS)
    longest = ceil_div(size, pieces)
    if line := _line(op, tiles, axes, packed):
        rows = (outer - 1) * line + size
        joined = ceil_div(rows, ROWS)
        if joined < outer * pieces and joined * (width // LANES) <= MOST_SUMS:
            longest = ceil_div(rows, joined)
            starts = [(i * (rows - longest) // max(1, joined - 1), longest) for i in range(joined)]
            return Tiling(tuple(starts), axes[-1], step, row_bytes, taps, size, line)
    if outer * pieces * (width // LANES) > MOST_SUMS or (pieces > 2 and size % pieces):
        return None  # two registers hold the rows of the parts in turn, so every other part has equally many
    starts = [(size * o + begin, min(longest, size - begin)) for o in range(outer) for begin in range(0, size, longest)]
    return Tiling(tuple(starts), axes[-1] if axes else -1, step, row_bytes, taps)


def channels_of_row(channels: int, dtype: str) -> int:
    """Return how many of a pixel's adjacent channels a row of the scalar operand's tile holds, so that rows hold equally many.

    0 if they would be too few.
    """
    size = GROUPS[dtype]
    most = ROW_BYTES // ITEM_BYTES[dtype]
    return next((n for n in range(most, FEWEST_GROUPS * size - 1, -size) if channels % n == 0), 0)


def _line(op: Operator, tiles: tuple[tuple[int, ...], ...], axes: list[int], packed: bool) -> int:
    """Return how many pixels of a line lie between equal places of neighbouring lines; 0 if rows are not of lines.

    `axes` are those along which a register tile has several rows. An image of 7x7 pixels has 49 rows, and fills four tile
    registers instead of seven.
    """
    image, extents = op.reads[0], op.extents
    if len(axes) != 2 or any(sum(bool(row[a]) for row in image.coefficients) != 1 for a in axes):
        return 0
    (outer, down), (inner, across) = (next((d, row[a]) for d, row in enumerate(image.coefficients) if row[a]) for a in axes)
    far, near = (image.axis_strides()[a] for a in axes)
    if packed:
        if inner != outer + 1:
            return 0  # the copy has whole planes or blocks of channels between the places
        inside = next(row for row in image.coefficients if row[axes[1]])
        if any(c and tiles[2][a] != extents[a] for a, c in enumerate(inside)):
            return 0
        far, near = down * (1 + sum(c * (extent - 1) for c, extent in zip(inside, extents, strict=True))), across
    elif image.is_padded(extents):
        return 0
    return 0 if far % near else far // near


def _taps(op: Operator, tiles: tuple[tuple[int, ...], ...], group: int) -> int:
    """Return the axis of a window's neighbouring taps if a row of a tile holds a group of channels of each; -1 if none does.

    Outer tiles must not cut it. In a packed image, groups of channels of neighbouring pixels are adjacent.
    """
    axes = [a for a in op.reduce if op.reads[0].coefficients[-1][a]]
    if len(axes) != 1 or axes[0] == group:
        return -1
    axis, unit = axes[0], tuple(int(a == axes[0]) for a in range(len(op.axes)))
    neighbours = op.reads[0].coefficients[-1][axis] == 1 and op.reads[1].coefficients[-1] == unit
    whole = all(level[axis] >= op.extents[axis] for level in tiles[1:])
    return axis if neighbours and whole and FEWEST_TAPS <= op.extents[axis] <= ROW_BYTES // GROUP_BYTES else -1
