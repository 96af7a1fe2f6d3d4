"""Number of resident blocks of a multiprocessor.

The rules are those of NVIDIA's cuda_occupancy.h for compute capability 7.0 and newer, on plain integers so that Numba can compile
the function (`numba.njit(blocks_per_unit)`).
"""

from __future__ import annotations

PARTITIONS = 4
"""Number of partitions of a multiprocessor. A warp's registers are in one of them."""
REGISTER_UNIT = 256
"""Granularity of register allocation: a warp gets a multiple of this number."""


def blocks_per_unit(
    threads: int,
    registers_per_thread: int,
    shared_bytes: int,
    threads_per_unit: int,
    max_blocks: int,
    registers_per_unit: int,
    shared_per_unit: int,
    granularity: int,
    reserved: int,
) -> int:
    """Return how many blocks of a kernel a multiprocessor can hold at once; 0 if a block cannot be launched at all.

    `threads` and `shared_bytes` (static plus dynamic) describe one block. The limits are fields of `Hardware`; `shared_per_unit`
    is the capacity of its level `shared`. Limits per thread and per block (255 registers, 1024 threads, opt-in shared bytes) are
    not checked here.
    """
    warps = (threads + 31) // 32
    if warps <= 0:
        return 0
    blocks = min(max_blocks, int(threads_per_unit / (32 * warps)))  # exact, and faster than a division of integers
    if registers_per_thread > 0:
        per_warp = (32 * registers_per_thread + REGISTER_UNIT - 1) // REGISTER_UNIT * REGISTER_UNIT
        # A launch is checked as if the block's warps were spread evenly over the partitions.
        if per_warp * ((warps + PARTITIONS - 1) // PARTITIONS * PARTITIONS) > registers_per_unit:
            return 0
        blocks = min(blocks, int(PARTITIONS * int(registers_per_unit / (PARTITIONS * per_warp)) / warps))
    shared = int((shared_bytes + reserved + granularity - 1) / granularity) * granularity
    if shared > 0:
        blocks = min(blocks, int(shared_per_unit / shared))
    return blocks
