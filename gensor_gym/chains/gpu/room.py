"""Resources of a chain's block on a GPU, for many schedules at once: shared memory and registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.chains.chain import Chain, Matrix
from gensor_gym.chains.room import ceil_to
from gensor_gym.gir.nest import Access
from gensor_gym.hardware.occupancy import blocks_per_unit
from gensor_gym.hardware.types import Hardware

HEIGHT, DEPTH = 16, 16
"""Rows of an instruction of the tensor cores, and elements along its reduction."""
PAD = 8
"""Elements between rows of a tile in shared memory: 16 bytes, so that eight rows one after another meet in no bank."""
ITEM = 2
"""Bytes of an element."""
WARP = 32
_OTHER = 56
"""Registers of a thread in addition to tiles: addresses, counters, numbers of rows; our estimate from what NVRTC 13.0 takes."""
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Room:
    """Sizes of a chain's tiles, in elements. Inner extents are padded to whole instructions."""

    chain: Chain
    hardware: Hardware

    @cached_property
    def inner(self) -> int:
        """Padded reduction of the first product."""
        return ceil_to(self.chain.products[0].inner, DEPTH)

    @cached_property
    def out(self) -> int:
        """Padded columns of the second product."""
        return ceil_to(self.chain.products[1].columns, DEPTH)

    def rows(self, header: Columns) -> np.ndarray:
        """Number [B] of rows of a block."""
        return header["warps"] * header["heights"] * HEIGHT

    def buffer_bytes(self, header: Columns) -> np.ndarray:
        """Bytes of one buffer [B]: tiles of both right operands."""
        keys = header["keys"]
        first, second = (is_deep(matrix) for matrix in (self.chain.first, self.chain.second))
        sides = ((self.inner, keys) if first else (keys, self.inner)), ((keys, self.out) if second else (self.out, keys))
        return ITEM * sum((np.asarray(rows * (columns + PAD)) for rows, columns in sides), np.zeros(len(keys), np.int64))

    def shared_bytes(self, header: Columns) -> np.ndarray:
        """Bytes of shared memory of a block [B]: the rows of the left operand and all buffers."""
        return ITEM * self.rows(header) * (self.inner + PAD) + header["stages"] * self.buffer_bytes(header)

    def registers(self, header: Columns) -> np.ndarray:
        """Registers [B] of a thread: scores, elements loaded for them, sums of the output, rows of the left operand, others."""
        tall, keys = header["heights"], header["keys"]
        held = np.where(header["hold"] == 1, tall * self.inner // 4, tall * 4)
        found: np.ndarray = tall * (keys // 2 * (1 + self._loads) + self.out // 2) + held + 8 * tall + _OTHER
        return found

    @cached_property
    def _loads(self) -> int:
        """Tensors whose elements are loaded for every score; NVRTC loads all of a tile at once."""
        cells = self.chain.middle.cells if self.chain.middle is not None else ()
        return sum(cell.wide and isinstance(cell.made, Access) and cell.made.tensor != self.chain.scores for cell in cells)

    def resident(self, header: Columns) -> np.ndarray:
        """Number [B] of resident blocks of a multiprocessor, at least 1. A kernel requests it, which limits its registers."""
        hw = self.hardware
        limits = (hw.threads_per_unit, hw.blocks_per_unit, hw.registers_per_unit, hw.level("shared").capacity)
        needs = (header["warps"] * WARP, self.registers(header), self.shared_bytes(header))
        found = [
            blocks_per_unit(int(one), int(two), int(three), *limits, hw.shared_granularity, hw.shared_reserved)
            for one, two, three in zip(*needs, strict=True)
        ]
        return np.maximum(np.array(found), 1)

    def fits(self, header: Columns) -> np.ndarray:
        """Whether a block fits the machine, bool [B]."""
        hw = self.hardware
        registers, threads = self.registers(header), header["warps"] * WARP
        fitting = (registers <= hw.registers_per_thread) & (threads * registers <= hw.registers_per_unit)
        return fitting & (threads <= hw.threads_per_block) & (self.shared_bytes(header) <= hw.shared_per_block)


def is_deep(matrix: Matrix) -> bool:
    """Whether a right operand's tile has a row for each element of the reduction, because columns are adjacent in memory.

    Otherwise the tile has a row for each column of the product. A single row or column (stride 0) may be either.
    """
    return matrix.column == 1 or (matrix.column == 0 and matrix.row != 1)
