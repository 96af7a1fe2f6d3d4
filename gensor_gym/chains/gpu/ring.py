"""Shared memory and registers of a chain's block with wgmma (sm_90a): a ring of buffers for tiles, and consumer warpgroups.

A tile consists of panels of 64 columns: swizzled rows of 128 bytes, as tensor maps write and wgmma reads them. One warpgroup
copies. Each of the other warpgroups, the consumers, computes 64 rows of the block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.chains.chain import Chain
from gensor_gym.chains.gpu.tiles import HEIGHT, ITEM, WARP, is_deep
from gensor_gym.hardware.types import Hardware

ROW_BYTES = 128
"""Number of bytes in a swizzled row of a tile in shared memory."""
PANEL = ROW_BYTES // ITEM
"""Number of 16-bit elements in a swizzled row; a tile consists of panels that are one such row wide."""
ATOM_BYTES = 1024
"""Bytes of eight rows: the period of the swizzle and the alignment of tiles."""
GROUP = 4
"""Number of warps in a warpgroup, which computes 64 rows."""
MOST_CONSUMERS = 3
"""Most consumers (multiplying warpgroups) of a block.

Three consumers have 160 registers a thread, as in FlashAttention-3 (arXiv 2407.08608).
"""
LEAST_KEYS = 64
"""Fewest keys of a tile.

It is one panel if keys are contiguous, and the number of columns from which on wgmma is fast (arXiv 2402.13499).
"""
WIDEST = 256
"""Most columns of a wgmma instruction, and most rows of a box that TMA copies (PTX ISA; `cuTensorMapEncodeTiled`)."""
_MOST = 232
"""Most registers of a consumer's thread. The producer's thread has 40 and there are two consumers, as in CUTLASS's kernels."""
MOST_REGISTERS = 240
"""Most registers of a thread that NVRTC 13.0 uses before it spills; it wastes some of the 255."""
_OTHER, _LOADED = 32, 32
"""Registers of a thread besides its tiles, and registers to load one tensor that has an element for every score.

The second number is for up to 128 keys; with more keys, all elements of a tile are loaded at once. With fewer registers, NVRTC
13.0 spills in some of 144 kernels (sm_90a).
"""
_BESIDE = 30
"""Registers in addition to the sums of one wgmma instruction: NVRTC 13.0 needs 158 with 128 sums."""
_TILE_BARRIERS = 32
"""Bytes of a stage's barriers. Each right operand has one for arrived data and one for a free buffer."""
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Ring:
    """Shared memory and registers of a chain's kernels with wgmma.

    `header` has the fields of many schedules by name, [B] each.
    """

    chain: Chain
    inner: int
    """Extent of the first product's reduction, padded to whole instructions."""
    out: int
    """Number of columns of the second product, padded to whole instructions."""

    def left_bytes(self, header: Columns) -> np.ndarray:
        """Return the bytes [B] of shared memory for the block's rows of the left operand."""
        return _bytes(header["warps"] * HEIGHT, self.inner)

    def first_bytes(self, header: Columns) -> np.ndarray:
        """Return the bytes [B] of shared memory for one tile of the first product's right operand (the keys)."""
        keys = header["keys"]
        return _bytes(np.full_like(keys, self.inner), keys) if is_deep(self.chain.first) else _bytes(keys, self.inner)

    def second_bytes(self, header: Columns) -> np.ndarray:
        """Return the bytes [B] of shared memory for one tile of the second product's right operand (the values)."""
        keys = header["keys"]
        return _bytes(keys, self.out) if is_deep(self.chain.second) else _bytes(np.full_like(keys, self.out), keys)

    def shared_bytes(self, header: Columns) -> np.ndarray:
        """Return the bytes [B] of a block's shared memory.

        It holds the left operand, the buffers of all stages, barriers, and padding before the first tile. Besides the stages'
        barriers, one is for the left operand and one for each consumer's turn.
        """
        stage = self.first_bytes(header) + self.second_bytes(header) + _TILE_BARRIERS
        found: np.ndarray = ATOM_BYTES + self.left_bytes(header) + header["stages"] * stage + 8 * (1 + MOST_CONSUMERS)
        return found

    def registers(self, header: Columns, loads: int) -> np.ndarray:
        """Return the registers [B] that a consumer's thread needs.

        `loads` is the number of tensors that the row nest reads with an element for every score. Weights reuse the scores'
        registers, or have their own if the next scores are computed at the same time.
        """
        keys = header["keys"]
        loaded = np.where(keys > 128, keys // 2, _LOADED) * loads
        found: np.ndarray = keys // 2 + (header["overlap"] > 0) * (keys // 4) + self.out // 2 + _OTHER + loaded
        return found

    def least_registers(self, header: Columns) -> np.ndarray:
        """Return the least number [B] of registers of a thread with which the wgmma instructions of both products compile."""
        found: np.ndarray = np.maximum(header["keys"], self.out) // 2 + _BESIDE
        return found

    def fits(self, header: Columns) -> np.ndarray:
        """Return whether the tiles and warps of each schedule suit wgmma instructions, bool [B]."""
        keys, whole = header["keys"], (header["warps"] % GROUP == 0) & (header["heights"] == 1) & (header["hold"] == 0)
        within = max(self.inner if is_deep(self.chain.first) else 0, self.out) <= WIDEST
        found: np.ndarray = whole & (keys >= LEAST_KEYS) & within
        return found


def registers(consumers: int, resident: int, hardware: Hardware) -> tuple[int, int, int]:
    """Return the registers of a thread: (at the kernel's start, of the producer, of a consumer).

    The last two are 0 if they stay as at the start. At the start, a block's registers are divided evenly, in multiples of eight a
    thread.
    """
    block = GROUP * WARP * (consumers + 1)
    even = min(hardware.registers_per_thread, hardware.registers_per_unit // (block * resident) // 8 * 8)
    producer = 40 if consumers < 3 else 32  # so that three consumers have 160
    asked = min(_MOST, (even * (consumers + 1) - producer) // consumers // 8 * 8)
    return (even, producer, asked) if asked > even > producer else (even, 0, 0)


def _bytes(rows: np.ndarray, columns: int | np.ndarray) -> np.ndarray:
    """Return the bytes of a tile of `rows` x `columns` elements, stored as panels of 64 columns."""
    found: np.ndarray = rows * ROW_BYTES * -(-columns // PANEL)
    return found
