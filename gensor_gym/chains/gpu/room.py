"""Resources of a chain's block on a GPU, for many schedules at once: shared memory and registers.

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
from gensor_gym.gir.nest import Access
from gensor_gym.hardware.occupancy import blocks_per_unit
from gensor_gym.hardware.types import Hardware

_OTHER = 56
"""Registers of a thread besides tiles (addresses, counters, row numbers): our estimate from kernels of NVRTC 13.0."""
_MOST_RESIDENT = 4
"""Most blocks with wgmma on a multiprocessor: four of two warpgroups have 64 registers a thread."""
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Room:
    """Resources of a chain's blocks on a machine. `header` has the fields of many schedules by name, [B] each."""

    chain: Chain
    hardware: Hardware

    @cached_property
    def inner(self) -> int:
        """Extent of the first product's reduction, padded to whole instructions."""
        return ceil_to(self.chain.products[0].inner, DEPTH)

    @cached_property
    def out(self) -> int:
        """Number of columns of the second product, padded to whole instructions."""
        return ceil_to(self.chain.products[1].columns, DEPTH)

    @cached_property
    def ring(self) -> Ring:
        """Resources of wgmma kernels."""
        return Ring(self.chain, self.inner, self.out)

    def rows(self, header: Columns) -> np.ndarray:
        """Number [B] of a block's rows."""
        return header["warps"] * header["heights"] * HEIGHT

    def buffer_bytes(self, header: Columns) -> np.ndarray:
        """Bytes [B] of one buffer: a tile of each right operand."""
        wide = self.ring.first_bytes(header) + self.ring.second_bytes(header)
        return np.where(_is_wgmma(header), wide, self._padded_bytes(header["keys"]))

    def _padded_bytes(self, keys: np.ndarray) -> np.ndarray:
        first, second = (is_deep(matrix) for matrix in (self.chain.first, self.chain.second))
        sides = ((self.inner, keys) if first else (keys, self.inner)), ((keys, self.out) if second else (self.out, keys))
        return ITEM * sum((np.asarray(rows * (columns + PAD)) for rows, columns in sides), np.zeros(len(keys), np.int64))

    def left_bytes(self, header: Columns) -> np.ndarray:
        """Bytes [B] of the left operand's rows in shared memory."""
        return np.where(_is_wgmma(header), self.ring.left_bytes(header), ITEM * self.rows(header) * (self.inner + PAD))

    def shared_bytes(self, header: Columns) -> np.ndarray:
        """Bytes [B] of a block's shared memory: the rows of the left operand and all buffers."""
        padded = self.left_bytes(header) + header["stages"] * self.buffer_bytes(header)
        return np.where(_is_wgmma(header), self.ring.shared_bytes(header), padded)

    def registers(self, header: Columns) -> np.ndarray:
        """Registers [B] of a thread: scores, elements loaded for them, sums of the output, rows of the left operand, others."""
        tall, keys = header["heights"], header["keys"]
        held = np.where(header["hold"] == 1, tall * self.inner // 4, tall * 4)
        padded = tall * (keys // 2 * (1 + self._loads) + self.out // 2) + held + 8 * tall + _OTHER
        return np.where(_is_wgmma(header), self.ring.registers(header, self._loads), padded)

    def threads(self, header: Columns) -> np.ndarray:
        """Threads [B] of a block; with wgmma, one more warpgroup copies."""
        return np.where(_is_wgmma(header), (header["warps"] + GROUP) * WARP, header["warps"] * WARP)

    @cached_property
    def _loads(self) -> int:
        """Number of tensors with an element for every score; NVRTC loads all of a tile at once if registers are left."""
        cells = self.chain.middle.cells if self.chain.middle is not None else ()
        return sum(cell.wide and isinstance(cell.made, Access) and cell.made.tensor != self.chain.scores for cell in cells)

    def resident(self, header: Columns) -> np.ndarray:
        """Number [B] of resident blocks of a multiprocessor, at least 1. A kernel requests it, which limits its registers."""
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
        """Most resident wgmma blocks [B] whose consumers have enough registers, 0 if one block has too few.

        The assembler requires an instruction's registers from the kernel's start.
        """
        groups, needed, least = header["warps"] // GROUP, self.registers(header), self.ring.least_registers(header)
        found = np.zeros(len(needed), np.int64)
        for consumers, resident in itertools.product(range(1, MOST_CONSUMERS + 1), range(1, _MOST_RESIDENT + 1)):
            start, _, own = registers(consumers, resident, self.hardware)
            enough = (needed <= min(max(start, own), MOST_REGISTERS)) & (least <= start)
            found[(groups == consumers) & enough] = resident
        return found

    def fits(self, header: Columns) -> np.ndarray:
        """Whether a block fits the machine, bool [B]."""
        hw, wide = self.hardware, _is_wgmma(header)
        needed, count = self.registers(header), self.threads(header)
        fitting = (needed <= hw.registers_per_thread) & (count * needed <= hw.registers_per_unit)
        fitting = np.where(wide, (self._living(header) > 0) & self.ring.fits(header), fitting)
        return fitting & (count <= hw.threads_per_block) & (self.shared_bytes(header) <= hw.shared_per_block)


def _is_wgmma(header: Columns) -> np.ndarray:
    found: np.ndarray = header["tensor"] == 2
    return found
