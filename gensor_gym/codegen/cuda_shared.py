"""Layout of shared memory: the box of every staged read, its pitch or swizzle, and how it gets there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gensor_gym.codegen.cuda_text import total
from gensor_gym.graph.structure import shared_inner
from gensor_gym.operators.types import ITEM_BYTES, Access

if TYPE_CHECKING:
    from gensor_gym.codegen.cuda_plan import Plan

UNIT = 16
"""Bytes that stay together in a swizzled row: the widest load."""
PERMUTED_UNITS = 8
"""Units that a swizzle permutes: 128 bytes, all banks once."""
SMALLEST_COPY = 4
"""Bytes that one asynchronous copy moves at least."""


@dataclass(frozen=True)
class SharedTile:
    """A staged read's box in shared memory.

    Dimensions are those of the read's view. `strides` are elements between neighbours along each of them, `offset` and
    `nbytes` (of one buffer) are bytes. Where `swizzle` is not 0, row number r has its units of 16 bytes permuted: unit u
    stands at u xor (r mod swizzle).
    """

    shape: tuple[int, ...]  # [D]
    strides: tuple[int, ...]  # [D]
    inner: int
    """The dimension that is contiguous."""
    item: int
    """Bytes of an element."""
    offset: int
    nbytes: int
    load_width: int
    store_width: int
    asynchronous: bool = False
    swizzle: int = 0

    @property
    def loads(self) -> int:
        """Global loads that fill the tile once."""
        return math.prod(self.shape) // self.load_width

    @property
    def pitch(self) -> int:
        """Elements from one row to the next."""
        return min((s for d, s in enumerate(self.strides) if d != self.inner), default=self.shape[self.inner])

    @property
    def rows(self) -> int:
        """Rows: all dimensions but the contiguous one."""
        return math.prod(self.shape) // self.shape[self.inner]

    def address(self, places: Sequence[str]) -> str:
        """C text of an element's place, from the elements' indices along the dimensions."""
        if not self.swizzle:
            return total(zip(self.strides, places, strict=True))
        row = total((s // self.pitch, places[d]) for d, s in enumerate(self.strides) if d != self.inner)
        unit = UNIT // self.item
        column = places[self.inner]
        permuted = f"({column} ^ {total([(unit, _remainder(row, self.swizzle))])})" if row != "0" else column
        return total([(self.pitch, row), (1, permuted)])


def _remainder(row: str, divisor: int) -> str:
    """`row % divisor` as a factor."""
    return f"({row}) % {divisor}" if " " in row else f"{row} % {divisor}"


def shared_layout(plan: Plan) -> tuple[SharedTile | None, ...]:
    """The tile of each read in one buffer after another, each from a multiple of 16 bytes on; None where read directly.

    Rows are padded or swizzled as knob shared_layout asks, unless only the padding would exceed what a block may take.
    """
    layout = plan.program.knob("shared_layout")
    tiles = _tiles(plan, layout)
    fits = _stage_bytes(tiles) * plan.stages <= plan.program.hardware.shared_per_block
    return tiles if fits or layout != 1 else _tiles(plan, 0)


def _tiles(plan: Plan, layout: int) -> tuple[SharedTile | None, ...]:
    """All tiles in one layout."""
    tiles: list[SharedTile | None] = []
    for read, staged in zip(plan.op.reads, plan.staged, strict=True):
        tiles.append(_tile(plan, read, _stage_bytes(tiles), layout) if staged else None)
    return tuple(tiles)


def _stage_bytes(tiles: Sequence[SharedTile | None]) -> int:
    """Bytes up to the end of the last tile, a multiple of 16."""
    end = max((tile.offset + tile.nbytes for tile in tiles if tile), default=0)
    return -(-end // UNIT) * UNIT


def stage_bytes(plan: Plan) -> int:
    """Bytes of all tiles of one step."""
    return _stage_bytes(plan.shared)


def _tile(plan: Plan, read: Access, offset: int, layout: int) -> SharedTile:
    """Layout of one box: shared_inner last, the other dimensions in the tensor's order."""
    shape, item = plan.program.box(read, 1).shape, ITEM_BYTES[read.tensor.dtype]
    inner, last = shared_inner(plan.op, read), len(shape) - 1
    load_width = plan.global_width(read, shape[last])
    order = [d for d in range(len(shape)) if d != inner] + [inner]
    rows = math.prod(shape) // shape[inner]
    mover = plan.sole_mover(read, inner)
    wide = load_width > 1 or (mover in plan.op.spatial and plan.inner[mover] % 2 == 0)
    pitch = shape[inner] + ((4 if wide else 1) if layout == 1 and rows > 1 else 0)
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= pitch if d == inner else shape[d]
    store_width = load_width if inner == last and pitch % load_width == 0 else 1
    asynchronous = plan.stages > 1 and plan.copies_by_itself(read) and item * store_width >= SMALLEST_COPY
    if asynchronous:
        load_width = store_width
    swizzle = _swizzle(pitch * item, rows) if layout == 2 else 0
    return SharedTile(
        shape, tuple(strides), inner, item, offset, rows * pitch * item, load_width, store_width, asynchronous, swizzle
    )


def _swizzle(row_bytes: int, rows: int) -> int:
    """Units that a row's swizzle permutes, a power of two; 0 where rows are not whole units or there is only one."""
    units = math.gcd(row_bytes // UNIT, PERMUTED_UNITS) if row_bytes % UNIT == 0 else 1
    return units if units > 1 and rows > 1 else 0
