"""Layout of shared memory: the box of every staged read, its pitch or swizzle, and how it gets there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gensor_gym.codegen.cuda.text import total
from gensor_gym.codegen.cuda.tiles.tiling import Tiling
from gensor_gym.graph.structure import shared_inner
from gensor_gym.operators.types import ITEM_BYTES, Access

UNIT = 16
"""Bytes that stay together in a swizzled row: the widest load."""
PERMUTED_UNITS = 8
"""Units that a swizzle permutes: 128 bytes, all banks once."""
SMALLEST_COPY = 4
"""Bytes that one asynchronous copy moves at least."""


@dataclass(frozen=True)
class SharedTile:
    """A staged read's box in shared memory.

    Dimensions are those of the read's view. If `axes` is not empty (an implicit matrix product), they are these axes of the
    operator, and the tile is a matrix that repeats elements shared by windows. `strides` are elements between neighbours along
    each dimension, `offset` and `nbytes` (of one buffer) are bytes. Dimensions `columns` make up a row of `pitch` elements. If
    `swizzle` is not 0, row r has its units of 16 bytes permuted: unit u is at u xor (r mod swizzle).
    """

    shape: tuple[int, ...]  # [D]
    strides: tuple[int, ...]  # [D]
    columns: tuple[int, ...]
    pitch: int
    item: int
    """Bytes of an element."""
    offset: int
    nbytes: int
    load_width: int = 1
    store_width: int = 1
    asynchronous: bool = False
    swizzle: int = 0
    axes: tuple[int, ...] = ()
    lead: int = 0
    """Elements before those that are read along the last dimension, so that a window's rows begin aligned."""

    @property
    def loads(self) -> int:
        """Global loads that fill the tile once."""
        return math.prod(self.shape) // self.load_width

    def places(self, access: Access, indices: Sequence[str], from_first: bool = False) -> list[str]:
        """Index along every dimension, as C text, for axis values within the block tile and the step.

        `from_first`: values, and so indices, count from a thread's first element.
        """
        if self.axes:
            return [indices[a] for a in self.axes]
        leads = [0] * (len(self.shape) - 1) + [0 if from_first else self.lead]
        return [total(zip(row, indices, strict=True), lead) for row, lead in zip(access.coefficients, leads, strict=True)]

    def address(self, places: Sequence[str]) -> str:
        """C text of an element's place, from the elements' indices along the dimensions."""
        if not self.swizzle:
            return total(zip(self.strides, places, strict=True))
        pairs = list(enumerate(zip(self.strides, places, strict=True)))
        row = total((stride // self.pitch, place) for d, (stride, place) in pairs if d not in self.columns)
        column = total(pair for d, pair in pairs if d in self.columns)
        permuted = f"({column} ^ {total([(UNIT // self.item, _remainder(row, self.swizzle))])})" if row != "0" else column
        return total([(self.pitch, row), (1, permuted)])


def _remainder(row: str, divisor: int) -> str:
    """`row % divisor` as a factor."""
    return f"({row}) % {divisor}" if " " in row else f"{row} % {divisor}"


def shared_layout(tiling: Tiling) -> tuple[SharedTile | None, ...]:
    """The tile of each read in one buffer after another, aligned to 16 bytes; None if the read is direct.

    Rows are padded or swizzled as knob shared_layout says, unless only the padding would exceed a block's shared memory.
    """
    layout = tiling.program.knob("shared_layout")
    tiles = _tiles(tiling, layout)
    fits = stage_bytes(tiles) * tiling.stages <= tiling.program.hardware.shared_per_block
    return tiles if fits or layout != 1 else _tiles(tiling, 0)


def _tiles(tiling: Tiling, layout: int) -> tuple[SharedTile | None, ...]:
    """All tiles in one layout."""
    tiles: list[SharedTile | None] = []
    for read, staged in zip(tiling.op.reads, tiling.staged, strict=True):
        tiles.append(_tile(tiling, read, stage_bytes(tiles), layout) if staged else None)
    return tuple(tiles)


def stage_bytes(tiles: Sequence[SharedTile | None]) -> int:
    """Bytes of all tiles of one step: up to the end of the last one, a multiple of 16."""
    end = max((tile.offset + tile.nbytes for tile in tiles if tile), default=0)
    return -(-end // UNIT) * UNIT


def _tile(tiling: Tiling, read: Access, offset: int, layout: int) -> SharedTile:
    """Layout of one read's box or matrix."""
    axes, lead = _matrix(tiling, read), 0
    if axes:
        shape = tuple(tiling.block[a] for a in axes)
        columns = [d for d, a in enumerate(axes) if a in tiling.op.spatial]
        load_width, mover = 1, axes[-1]
    else:
        shape = tiling.program.box(read, 1).shape
        columns = [shared_inner(tiling.op, read)]
        load_width, mover = tiling.global_width(read, shape[-1]), tiling.sole_mover(read, columns[0])
        if (window := tiling.window(read)).width > 1:
            load_width, lead = window.width, window.lead
            shape = (*shape[:-1], window.length(shape[-1]))
    wide = load_width > 1 or (mover in tiling.op.spatial and tiling.inner[mover] % 2 == 0)
    width = math.prod(shape[d] for d in columns)
    rows = math.prod(shape) // width
    pitch = width + ((4 if wide else 1) if layout == 1 and rows > 1 else 0)
    strides, step = [0] * len(shape), 1
    order = [d for d in range(len(shape)) if d not in columns] + columns
    for place, d in enumerate(reversed(order)):
        strides[d] = step
        step = pitch if place == len(columns) - 1 else step * shape[d]
    item = ITEM_BYTES[read.tensor.dtype]
    store_width = load_width if columns == [len(shape) - 1] and pitch % load_width == 0 else 1
    asynchronous = tiling.stages > 1 and tiling.copies_by_itself(read) and item * store_width >= SMALLEST_COPY
    return SharedTile(
        shape,
        tuple(strides),
        tuple(columns),
        pitch,
        item,
        offset,
        rows * pitch * item,
        store_width if asynchronous else load_width,
        store_width,
        asynchronous,
        _swizzle(pitch * item, rows) if layout == 2 else 0,
        axes, lead,
    )  # fmt: skip


def _matrix(tiling: Tiling, read: Access) -> tuple[int, ...]:
    """Axes of the matrix that an implicit product makes of a read: its rows, then its columns; none for a plain box.

    Only reads in which several axes meet in one dimension need one: in a box windows would share elements.
    """
    if tiling.program.knob("convolution") != 3:
        return ()
    extents, strides = tiling.op.extents, read.axis_strides()
    if all(sum(1 for a, c in enumerate(row) if c and extents[a] > 1) < 2 for row in read.coefficients):
        return ()
    return tuple(a for a in (*tiling.op.reduce, *tiling.op.spatial) if strides[a])


def _swizzle(row_bytes: int, rows: int) -> int:
    """Units that a row's swizzle permutes, a power of two; 0 if rows are not whole units or there is only one."""
    units = math.gcd(row_bytes // UNIT, PERMUTED_UNITS) if row_bytes % UNIT == 0 else 1
    return units if units > 1 and rows > 1 else 0
