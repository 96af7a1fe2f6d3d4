"""What a block of a chain needs with wgmma (sm_90a): tiles in a ring of shared memory, registers of consumers.

A tile lies in panels of 64 elements: rows of 128 bytes, swizzled, as tensor maps write and wgmma reads them. One warpgroup
copies, the others, the consumers, have 64 rows of the block each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.chains.chain import Chain
from gensor_gym.chains.gpu.tiles import HEIGHT, ITEM, WARP, is_deep
from gensor_gym.hardware.types import Hardware

ROW_BYTES = 128
"""Bytes of a swizzled row."""
PANEL = ROW_BYTES // ITEM
"""Elements of a swizzled row."""
ATOM_BYTES = 1024
"""Bytes of eight rows: the period of the swizzle and the alignment of tiles."""
GROUP = 4
"""Warps of a warpgroup, which has 64 rows."""
MOST_CONSUMERS = 3
"""Consumers of a block: three have 160 registers a thread, as in FlashAttention-3 (arXiv 2407.08608)."""
LEAST_KEYS = 64
"""Keys of a tile at least: a panel where they are contiguous, and the columns from which wgmma is fast (arXiv 2402.13499)."""
WIDEST = 256
"""Columns of a wgmma, and rows of a box, at most (PTX ISA; `cuTensorMapEncodeTiled`)."""
_MOST = 232
"""Registers of a consumer at most, with one producer of 40 and two consumers, as in CUTLASS's kernels."""
MOST_REGISTERS = 240
"""Registers of a thread with which NVRTC 13.0 still compiles without spills: of 255 it wastes some."""
_OTHER, _LOADED = 32, 32
"""Registers in addition to tiles, and of loads for the scores of up to 128 keys; of more keys all are loaded at once.

With fewer, NVRTC 13.0 spills in some of 144 kernels (sm_90a).
"""
_BESIDE = 30
"""Registers in addition to an instruction's sums: NVRTC 13.0 asks for 158 with 128 sums."""
_TILE_BARRIERS = 32
"""Bytes of a stage's barriers: for either right operand one for data that has arrived, one for a free buffer."""
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Ring:
    """Sizes in bytes and registers, for many schedules at once."""

    chain: Chain
    inner: int
    """Padded reduction of the first product."""
    out: int
    """Padded columns of the second product."""

    def left_bytes(self, header: Columns) -> np.ndarray:
        """Bytes of the left operand's rows [B]."""
        return _bytes(header["warps"] * HEIGHT, self.inner)

    def first_bytes(self, header: Columns) -> np.ndarray:
        """Bytes of a tile of the first right operand [B]."""
        keys = header["keys"]
        return _bytes(np.full_like(keys, self.inner), keys) if is_deep(self.chain.first) else _bytes(keys, self.inner)

    def second_bytes(self, header: Columns) -> np.ndarray:
        """Bytes of a tile of the second right operand [B]."""
        keys = header["keys"]
        return _bytes(keys, self.out) if is_deep(self.chain.second) else _bytes(np.full_like(keys, self.out), keys)

    def shared_bytes(self, header: Columns) -> np.ndarray:
        """Bytes of shared memory of a block [B]: the left operand, all stages, barriers, and padding before the first tile.

        The left operand has a barrier, and so has every consumer's turn.
        """
        stage = self.first_bytes(header) + self.second_bytes(header) + _TILE_BARRIERS
        found: np.ndarray = ATOM_BYTES + self.left_bytes(header) + header["stages"] * stage + 8 * (1 + MOST_CONSUMERS)
        return found

    def registers(self, header: Columns, loads: int) -> np.ndarray:
        """Registers of a consumer's thread [B], where `loads` tensors are read for every score.

        Weights take the place of the scores, or need registers of their own where the next scores are computed meanwhile.
        """
        keys = header["keys"]
        loaded = np.where(keys > 128, keys // 2, _LOADED) * loads
        found: np.ndarray = keys // 2 + (header["overlap"] > 0) * (keys // 4) + self.out // 2 + _OTHER + loaded
        return found

    def least_registers(self, header: Columns) -> np.ndarray:
        """Registers of a thread with which the larger instruction can be compiled [B]."""
        found: np.ndarray = np.maximum(header["keys"], self.out) // 2 + _BESIDE
        return found

    def fits(self, header: Columns) -> np.ndarray:
        """Whether tiles fit the instructions, bool [B]."""
        keys, whole = header["keys"], (header["warps"] % GROUP == 0) & (header["heights"] == 1) & (header["hold"] == 0)
        within = max(self.inner if is_deep(self.chain.first) else 0, self.out) <= WIDEST
        found: np.ndarray = whole & (keys >= LEAST_KEYS) & within
        return found


def registers(consumers: int, resident: int, hardware: Hardware) -> tuple[int, int, int]:
    """Registers of a thread: at the start, of the producer, and of a consumer; the last two are 0 where they do not change.

    A block's registers are divided evenly at first, in multiples of eight per thread.
    """
    block = GROUP * WARP * (consumers + 1)
    even = min(hardware.registers_per_thread, hardware.registers_per_unit // (block * resident) // 8 * 8)
    producer = 40 if consumers < 3 else 32  # then three consumers have 160
    asked = min(_MOST, (even * (consumers + 1) - producer) // consumers // 8 * 8)
    return (even, producer, asked) if asked > even > producer else (even, 0, 0)


def _bytes(rows: np.ndarray, columns: int | np.ndarray) -> np.ndarray:
    """Bytes of a tile of `rows` x `columns` elements in panels."""
    found: np.ndarray = rows * ROW_BYTES * -(-columns // PANEL)
    return found
