"""Shared memory, registers and threads of a chain's block on a GPU, for many schedules at once.

With mma.sync, the warps of a block share tiles with padded rows. With wgmma (`ring.py`), warps form warpgroups, and one more
warpgroup copies.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.chains.chain import Chain
from gensor_gym.chains.gpu.ring import GROUP, MOST_CONSUMERS, MOST_REGISTERS, Ring, registers
from gensor_gym.chains.gpu.tiles import DEPTH, HEIGHT, ITEM, PAD, WARP, is_deep
from gensor_gym.chains.room import ceil_to
from gensor_gym.hardware.occupancy import blocks_per_unit
from gensor_gym.hardware.types import Hardware

_OTHER = 56
"""Registers of a thread in addition to its tiles (addresses, counters, row numbers): our estimate from kernels of NVRTC 13.0."""
_MOST_RESIDENT = 4
"""Most wgmma blocks that run on a multiprocessor at the same time: four blocks of two warpgroups have 64 registers a thread."""
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Room:
    """Shared memory, registers and threads of a chain's blocks on a machine.

    `header` has the fields of many schedules by name, [B] each.
    """

    chain: Chain
    hardware: Hardware

    @cached_property
    def inner(self) -> int:
        """Extent of the first product's reduction (elements of a key), padded to whole instructions."""
        return ceil_to(self.chain.products[0].inner, DEPTH)

    @cached_property
    def out(self) -> int:
        """Number of columns of the second product (elements of a value), padded to whole instructions."""
        return ceil_to(self.chain.products[1].columns, DEPTH)

    @cached_property
    def ring(self) -> Ring:
        """Resources of wgmma kernels."""
        return Ring(self.chain, self.inner, self.out)

    def rows(self, header: Columns) -> np.ndarray:
        """Return the number [B] of rows that a block computes."""
        return header["warps"] * header["heights"] * HEIGHT

    def buffer_bytes(self, header: Columns) -> np.ndarray:
        """Return the bytes [B] of one buffer of shared memory: a tile of each product's right operand."""
        wide = self.ring.first_bytes(header) + self.ring.second_bytes(header)
        return np.where(_is_wgmma(header), wide, self._padded_bytes(header["keys"]))

    def _padded_bytes(self, keys: np.ndarray) -> np.ndarray:
        first, second = (is_deep(matrix) for matrix in (self.chain.first, self.chain.second))
        sides = ((self.inner, keys) if first else (keys, self.inner)), ((keys, self.out) if second else (self.out, keys))
        return ITEM * sum((np.asarray(rows * (columns + PAD)) for rows, columns in sides), np.zeros(len(keys), np.int64))

    def left_bytes(self, header: Columns) -> np.ndarray:
        """Return the bytes [B] of shared memory for the block's rows of the left operand."""
        return np.where(_is_wgmma(header), self.ring.left_bytes(header), ITEM * self.rows(header) * (self.inner + PAD))

    def shared_bytes(self, header: Columns) -> np.ndarray:
        """Return the bytes [B] of a block's shared memory.

        It holds the block's rows of the left operand, and all buffers for tiles of the right operands.
        """
        padded = self.left_bytes(header) + header["stages"] * self.buffer_bytes(header)
        return np.where(_is_wgmma(header), self.ring.shared_bytes(header), padded)

    def registers(self, header: Columns) -> np.ndarray:
        """Return the number [B] of registers of a thread.

        It counts scores, elements loaded for them, sums of the output, rows of the left operand, and others.
        """
        tall, keys = header["heights"], header["keys"]
        held = np.where(header["hold"] == 1, tall * self.inner // 4, tall * 4)
        padded = tall * (keys // 2 * (1 + self._loads) + self.out // 2) + held + 8 * tall + _OTHER
        return np.where(_is_wgmma(header), self.ring.registers(header, self._loads), padded)

    def threads(self, header: Columns) -> np.ndarray:
        """Return the number [B] of threads of a block; with wgmma, it includes one more warpgroup, which copies."""
        return np.where(_is_wgmma(header), (header["warps"] + GROUP) * WARP, header["warps"] * WARP)

    @cached_property
    def _loads(self) -> int:
        """Number of tensors that the row nest reads with an element for every score, such as a mask.

        NVRTC loads all of a tile's elements at once if registers are left.
        """
        cells = self.chain.middle.cells if self.chain.middle is not None else ()
        return sum(cell.wide and self.chain.is_read(cell) for cell in cells)

    def resident(self, header: Columns) -> np.ndarray:
        """Return the number [B] of blocks that a multiprocessor runs at the same time, at least 1.

        A kernel requests this number, which limits its registers.
        """
        hw = self.hardware
        limits = (hw.threads_per_unit, hw.blocks_per_unit, hw.registers_per_unit, hw.level("shared").capacity)
        wide = _is_wgmma(header)
        needs = (self.threads(header), np.where(wide, 0, self.registers(header)), self.shared_bytes(header))
        found = [
            blocks_per_unit(int(one), int(two), int(three), *limits, hw.shared_granularity, hw.shared_reserved)
            for one, two, three in zip(*needs, strict=True)
        ]
        return np.maximum(np.where(wide, np.minimum(found, self._living(header)), found), 1)

    def _living(self, header: Columns) -> np.ndarray:
        """Return the largest number [B] of wgmma blocks per multiprocessor that leaves consumers enough registers.

        It is 0 if a single block has too few registers. Registers that a consumer gets after the kernel's start do not count for
        its wgmma instructions: the assembler requires that they fit from the start.
        """
        groups, needed, least = header["warps"] // GROUP, self.registers(header), self.ring.least_registers(header)
        found = np.zeros(len(needed), np.int64)
        for consumers, resident in itertools.product(range(1, MOST_CONSUMERS + 1), range(1, _MOST_RESIDENT + 1)):
            start, _, own = registers(consumers, resident, self.hardware)
            enough = (needed <= min(max(start, own), MOST_REGISTERS)) & (least <= start)
            found[(groups == consumers) & enough] = resident
        return found

    def fits(self, header: Columns) -> np.ndarray:
        """Return whether a block of each schedule fits the machine, bool [B]."""
        hw, wide = self.hardware, _is_wgmma(header)
        needed, count = self.registers(header), self.threads(header)
        fitting = (needed <= hw.registers_per_thread) & (count * needed <= hw.registers_per_unit)
        fitting = np.where(wide, (self._living(header) > 0) & self.ring.fits(header), fitting)
        return fitting & (count <= hw.threads_per_block) & (self.shared_bytes(header) <= hw.shared_per_block)


def _is_wgmma(header: Columns) -> np.ndarray:
    found: np.ndarray = header["tensor"] == 2
    return found
