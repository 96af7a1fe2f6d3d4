"""Whether what a program takes of the hardware is within its limits. Compiled, for one row."""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.form import are_warps_whole, is_whole_matrix
from gensor_gym.graph.resources import (
    CLUSTER,
    CODE_LIMIT_CPU,
    CODE_LIMIT_GPU,
    CONVOLUTION,
    LANE_MAP,
    PACK_A,
    PACK_B,
    PERSISTENT,
    REDUCE_THREADS,
    SPLIT_K,
    TENSOR_CORE,
    THREAD_SPLIT,
    UNROLL,
    WARP_TILE,
    accumulators_of,
    code_of,
    power_value,
    reduce_product,
    reduce_steps,
    registers_of,
    shared_bytes_of,
    threads_of,
    tile_bytes,
    vectors_along,
)
from gensor_gym.graph.tables import (
    COPIED,
    L2_BYTES,
    L3_BYTES,
    REGS_THREAD,
    REGS_UNIT,
    SHARED_BLOCK,
    THREADS_BLOCK,
    UNITS,
    VECTOR_REGS,
    WARP,
)

WGMMA_REGISTERS = 240
"""Registers that a consumer of a wgmma kernel may hold: setmaxnreg gives so many to two warpgroups of three."""

REGISTERS, CODE, SHARED, REDUCE_SHARES, L1_TILE, TASK_TILE, PACKING, SPLIT, MATRIX, WARPS = (1 << i for i in range(10))
EVERY = (1 << 10) - 1
"""Limits, as members of a set. Both kinds of hardware: registers (and threads), code, work for all parts of a split
reduction. GPU: shared memory, work for all reduction threads, whole fragments for tensor cores and no knob that they
have no use for, whole warps over the block's threads. CPU: L1 tile, task tile, packing for vectors of channels.
"""


@lean
def fits_gpu(row, ints, limits=EVERY):  # noqa: ANN001, ANN201
    """Limits of a block; only those of the set `limits`, which is enough where the row is known to keep the others."""
    if limits & SPLIT and row[SPLIT_K] > 0 and power_value(row[SPLIT_K]) > reduce_steps(row, 1, ints):
        return False
    if limits & MATRIX and row[TENSOR_CORE] + row[PERSISTENT] + row[CLUSTER] > 0 and not is_whole_matrix(row, ints):
        return False
    if limits & WARPS and row[WARP_TILE] + row[LANE_MAP] > 0 and not are_warps_whole(row, ints):
        return False
    if limits & CODE and code_of(row, ints) > CODE_LIMIT_GPU:
        return False
    if limits & REGISTERS and not registers_fit(row, ints):
        return False
    if limits & SHARED and shared_bytes_of(row, ints) > ints[SHARED_BLOCK]:
        return False
    if limits & REDUCE_SHARES == 0 or row[REDUCE_THREADS] == 0:
        return True
    return power_value(row[REDUCE_THREADS]) <= reduce_product(row, 1, ints) // reduce_product(row, 0, ints)


@lean
def registers_fit(row, ints):  # noqa: ANN001, ANN201
    """Whether a block is within the limits of threads and of registers, of each thread and of all together."""
    threads, registers = threads_of(row, ints), registers_of(row, ints)
    if threads > ints[THREADS_BLOCK] or registers > ints[REGS_THREAD]:
        return False
    if row[TENSOR_CORE] == 2 and registers > WGMMA_REGISTERS:
        return False
    warps = (threads + ints[WARP] - 1) // ints[WARP]
    return (registers * ints[WARP] + 255) // 256 * 256 * ((warps + 3) // 4 * 4) <= ints[REGS_UNIT]


@lean
def fits_cpu(row, ints, limits=EVERY):  # noqa: ANN001, ANN201
    """Limits of a core: vector registers, code size, L1 tile within L2, task tile within a core's share of L3.

    `limits` as in `fits_gpu`.
    """
    if limits & (REGISTERS | CODE):
        accumulators = accumulators_of(row, ints)
        if accumulators + vectors_along(row, ints) + 1 > ints[VECTOR_REGS]:
            return False
        if accumulators * reduce_product(row, 0, ints) * power_value(row[UNROLL]) > CODE_LIMIT_CPU:
            return False
    if limits & L1_TILE and tile_bytes(row, 1, ints) > ints[L2_BYTES]:
        return False
    if limits & TASK_TILE and tile_bytes(row, 2, ints) > max(ints[L3_BYTES] // ints[UNITS], 4 * ints[L2_BYTES]):
        return False
    if limits & PACKING and row[CONVOLUTION] == 1 and row[PACK_B] == 0:
        return False
    if limits & PACKING and row[CONVOLUTION] == 2 and ints[COPIED] == 1 and row[PACK_A] == 0:
        return False
    if limits & SPLIT == 0 or row[THREAD_SPLIT] == 0:
        return True
    if row[CONVOLUTION] == 2:
        return False
    return power_value(row[THREAD_SPLIT]) <= reduce_steps(row, 2, ints)
