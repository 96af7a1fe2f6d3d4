"""Shared memory and registers of a chain's block with wgmma (sm_90a): a ring of buffers for tiles, and consumer warpgroups.

A tile consists of panels of 64 columns: swizzled rows of 128 bytes, as tensor maps write and wgmma reads them. One warpgroup
copies. Each of the others, the consumers, computes 64 rows of the block.
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
"""Warps of a warpgroup, which computes 64 rows."""
MOST_CONSUMERS = 3
"""Most consumers of a block: three have 160 registers a thread, as in FlashAttention-3 (arXiv 2407.08608)."""
LEAST_KEYS = 64
"""Fewest keys of a tile: a panel if keys are contiguous, and the columns from which wgmma is fast (arXiv 2402.13499)."""
WIDEST = 256
"""Most columns of a wgmma, and most rows of a box (PTX ISA; `cuTensorMapEncodeTiled`)."""
_MOST = 232
"""Most registers of a consumer's thread, with one producer of 40 and two consumers, as in CUTLASS's kernels."""
MOST_REGISTERS = 240
"""Most registers of a thread with which NVRTC 13.0 compiles without spills; it wastes some of the 255."""
_OTHER, _LOADED = 32, 32
"""Registers besides tiles, and registers for one tensor's loads with up to 128 keys; with more keys, all are loaded at once.

With fewer registers, NVRTC 13.0 spills in some of 144 kernels (sm_90a).
"""
_BESIDE = 30
"""Registers besides an instruction's sums: NVRTC 13.0 needs 158 with 128 sums."""
_TILE_BARRIERS = 32
"""Bytes of a stage's barriers: for each right operand, one for arrived data and one for a free buffer."""
Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Ring:
    """Shared memory and registers of wgmma kernels. `header` has the fields of many schedules by name, [B] each."""

    chain: Chain
    inner: int
    """Padded extent of the first product's reduction."""
    out: int
    """Padded number of columns of the second product."""

    def left_bytes(self, header: Columns) -> np.ndarray:
        """Bytes [B] of the left operand's rows in shared memory."""
        return _bytes(header["warps"] * HEIGHT, self.inner)

    def first_bytes(self, header: Columns) -> np.ndarray:
        """Bytes [B] of a tile of the first product's right operand."""
        keys = header["keys"]
        return _bytes(np.full_like(keys, self.inner), keys) if is_deep(self.chain.first) else _bytes(keys, self.inner)

    def second_bytes(self, header: Columns) -> np.ndarray:
        """Bytes [B] of a tile of the second product's right operand."""
        keys = header["keys"]
        return _bytes(keys, self.out) if is_deep(self.chain.second) else _bytes(np.full_like(keys, self.out), keys)

    def shared_bytes(self, header: Columns) -> np.ndarray:
        """Bytes [B] of a block's shared memory: left operand, all stages, barriers, and padding before the first tile.

        Besides the stages' barriers, one is for the left operand and one for each consumer's turn.
        """
        stage = self.first_bytes(header) + self.second_bytes(header) + _TILE_BARRIERS
        found: np.ndarray = ATOM_BYTES + self.left_bytes(header) + header["stages"] * stage + 8 * (1 + MOST_CONSUMERS)
        return found

    def registers(self, header: Columns, loads: int) -> np.ndarray:
        """Registers [B] of a consumer's thread if `loads` tensors are read for every score.

        Weights reuse the scores' registers, or have their own if the next scores are computed at the same time.
        """
        keys = header["keys"]
        loaded = np.where(keys > 128, keys // 2, _LOADED) * loads
        found: np.ndarray = keys // 2 + (header["overlap"] > 0) * (keys // 4) + self.out // 2 + _OTHER + loaded
        return found

    def least_registers(self, header: Columns) -> np.ndarray:
        """Registers [B] that a thread needs so that the larger of both wgmma instructions compiles."""
        found: np.ndarray = np.maximum(header["keys"], self.out) // 2 + _BESIDE
        return found

    def fits(self, header: Columns) -> np.ndarray:
        """Whether tiles and warps suit wgmma instructions, bool [B]."""
        keys, whole = header["keys"], (header["warps"] % GROUP == 0) & (header["heights"] == 1) & (header["hold"] == 0)
        within = max(self.inner if is_deep(self.chain.first) else 0, self.out) <= WIDEST
        found: np.ndarray = whole & (keys >= LEAST_KEYS) & within
        return found


def registers(consumers: int, resident: int, hardware: Hardware) -> tuple[int, int, int]:
    """Registers of a thread at the start, of the producer, and of a consumer; the last two are 0 if they do not change.

    At the start, a block's registers are divided evenly, in multiples of eight a thread.
    """
    block = GROUP * WARP * (consumers + 1)
    even = min(hardware.registers_per_thread, hardware.registers_per_unit // (block * resident) // 8 * 8)
    producer = 40 if consumers < 3 else 32  # so that three consumers have 160
    asked = min(_MOST, (even * (consumers + 1) - producer) // consumers // 8 * 8)
    return (even, producer, asked) if asked > even > producer else (even, 0, 0)


def _bytes(rows: np.ndarray, columns: int | np.ndarray) -> np.ndarray:
    """Bytes of a tile of `rows` x `columns` elements in panels."""
    found: np.ndarray = rows * ROW_BYTES * -(-columns // PANEL)
    return found
