"""Layout of shared memory: the box of every staged input, the pitch or swizzle of its rows, and the width of its copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gensor_gym.codegen.cuda.text import total
from gensor_gym.codegen.cuda.tiles.tiling import Tiling
from gensor_gym.graph.structure import shared_inner
from gensor_gym.operators.types import ITEM_BYTES, Access

UNIT = 16
"""Number of bytes that a swizzle moves as a whole: those of the widest load."""
PERMUTED_UNITS = 8
"""Largest number of 16-byte units that a swizzle permutes: 128 bytes, one word in every bank."""
SMALLEST_COPY = 4
"""Smallest number of bytes of an asynchronous copy."""


@dataclass(frozen=True)
class SharedTile:
    """The elements of one input that a block reads in a step (its box), in shared memory.

    The dimensions are those of the input's view. For an implicit matrix product they are the operator's `axes` instead, and the
    tile is a matrix that repeats elements shared by windows. `strides` are in elements, `offset` and `nbytes` (of one buffer) in
    bytes. The dimensions `columns` make up a row; rows are `pitch` elements apart. If `swizzle` is not 0, the 16-byte units of a
    row are permuted: unit u of row r is at position u xor (r mod swizzle).
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
    """Number of elements copied before the first element read along the last dimension.

    With them, the copied rows of a window begin aligned.
    """

    @property
    def loads(self) -> int:
        """Number of loads from the tensor that fill the tile once."""
        return math.prod(self.shape) // self.load_width

    def places(self, access: Access, indices: Sequence[str], from_first: bool = False) -> list[str]:
        """Return the C text of the index in the tile along every dimension, for axis values within the block tile and the step.

        With `from_first`, values and indices are relative to the thread's first element.
        """
        if self.axes:
            return [indices[a] for a in self.axes]
        leads = [0] * (len(self.shape) - 1) + [0 if from_first else self.lead]
        return [total(zip(row, indices, strict=True), lead) for row, lead in zip(access.coefficients, leads, strict=True)]

    def address(self, places: Sequence[str]) -> str:
        """Return the C text of an element's offset in the tile, for its indices along the dimensions."""
        if not self.swizzle:
            return total(zip(self.strides, places, strict=True))
        pairs = list(enumerate(zip(self.strides, places, strict=True)))
        row = total((stride // self.pitch, place) for d, (stride, place) in pairs if d not in self.columns)
        column = total(pair for d, pair in pairs if d in self.columns)
        permuted = f"({column} ^ {total([(UNIT // self.item, _remainder(row, self.swizzle))])})" if row != "0" else column
        return total([(self.pitch, row), (1, permuted)])


def _remainder(row: str, divisor: int) -> str:
    return f"({row}) % {divisor}" if " " in row else f"{row} % {divisor}"


def shared_layout(tiling: Tiling) -> tuple[SharedTile | None, ...]:
    """Lay out the tiles of all staged inputs in one buffer of shared memory, one after another, aligned to 16 bytes.

    Return the tile of each input, None for an input that is not staged. Knob `shared_layout` pads or swizzles rows. Padding is
    omitted if it would exceed a block's shared memory.
    """
    layout = tiling.program.knob("shared_layout")
    tiles = _tiles(tiling, layout)
    fits = stage_bytes(tiles) * tiling.stages <= tiling.program.hardware.shared_per_block
    return tiles if fits or layout != 1 else _tiles(tiling, 0)


def _tiles(tiling: Tiling, layout: int) -> tuple[SharedTile | None, ...]:
    tiles: list[SharedTile | None] = []
    for read, staged in zip(tiling.op.reads, tiling.staged, strict=True):
        tiles.append(_tile(tiling, read, stage_bytes(tiles), layout) if staged else None)
    return tuple(tiles)


def stage_bytes(tiles: Sequence[SharedTile | None]) -> int:
    """Return the number of bytes of all tiles of one step, up to the end of the last tile; a multiple of 16."""
    end = max((tile.offset + tile.nbytes for tile in tiles if tile), default=0)
    return -(-end // UNIT) * UNIT


def _tile(tiling: Tiling, read: Access, offset: int, layout: int) -> SharedTile:
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
    """Return the axes of the matrix that an implicit matrix product makes of an input, reduce axes first; empty for a plain box.

    Only an input with several axes in one dimension becomes a matrix, because windows share elements of its box.
    """
    if tiling.program.knob("convolution") != 3:
        return ()
    extents, strides = tiling.op.extents, read.axis_strides()
    if all(sum(1 for a, c in enumerate(row) if c and extents[a] > 1) < 2 for row in read.coefficients):
        return ()
    return tuple(a for a in (*tiling.op.reduce, *tiling.op.spatial) if strides[a])


def _swizzle(row_bytes: int, rows: int) -> int:
    """Return the number of 16-byte units of a row that its swizzle permutes, a power of two; 0 without a swizzle.

    A row is not swizzled if it is the tile's only row, is not whole units, or has an odd number of units.
    """
    units = math.gcd(row_bytes // UNIT, PERMUTED_UNITS) if row_bytes % UNIT == 0 else 1
    return units if units > 1 and rows > 1 else 0
