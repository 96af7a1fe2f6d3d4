"""Compiled checks whether the resources of a program are within the hardware's limits."""

from __future__ import annotations

import numpy as np

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.knobs.knob import (
    CODE,
    EVERY,
    L1_TILE,
    MATRIX,
    PACKING,
    REDUCE_SHARES,
    REGISTERS,
    SHARED,
    SPLIT,
    TASK_TILE,
    WARPS,
)
from gensor_gym.graph.knobs.lanes import are_warps_whole
from gensor_gym.graph.knobs.packing import is_packed_for_algorithm
from gensor_gym.graph.knobs.shares import blocks_have_steps, tasks_have_steps, threads_have_points
from gensor_gym.graph.knobs.tensor_cores import is_whole_matrix
from gensor_gym.graph.resources import (
    CODE_LIMIT_CPU,
    CODE_LIMIT_GPU,
    accumulators_of,
    code_of,
    registers_of,
    shared_bytes_of,
    threads_of,
    tile_bytes,
    vectors_along,
)
from gensor_gym.graph.tables.geometry import power_value, reduce_product
from gensor_gym.graph.tables.layout import TENSOR_CORE, UNROLL
from gensor_gym.graph.tables.tables import (
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
"""Registers that a multiplying thread of a wgmma program may use: setmaxnreg gives this number to two of three warpgroups."""
_OTHERS = [[knob.place for knob in KNOBS if core not in knob.cores] for core in (0, 1, 2)]
_NUM_OTHERS = np.array([len(places) for places in _OTHERS])
_OF_OTHERS = np.array([np.resize(places, max(_NUM_OTHERS)) for places in _OTHERS])
"""Knobs that a kind of program does not use, as indices in a row. The first index is the value of knob `tensor_core`."""


@lean
def fits_gpu(row, ints, limits=EVERY):  # noqa: ANN001, ANN201
    """Whether a GPU program is within those hardware limits that the bits of the int `limits` name."""
    if limits & SPLIT and not blocks_have_steps(row, ints):
        return False
    if limits & MATRIX and not (goes_with_cores(row) and is_whole_matrix(row, ints)):
        return False
    if limits & WARPS and not are_warps_whole(row, ints):
        return False
    if limits & CODE and code_of(row, ints) > CODE_LIMIT_GPU:
        return False
    if limits & REGISTERS and not registers_fit(row, ints):
        return False
    if limits & SHARED and shared_bytes_of(row, ints) > ints[SHARED_BLOCK]:
        return False
    return limits & REDUCE_SHARES == 0 or threads_have_points(row, ints)


@lean
def goes_with_cores(row):  # noqa: ANN001, ANN201
    """Whether all knobs that a program's kind (CUDA cores, mma.sync or wgmma) does not use are at their default."""
    for i in range(_NUM_OTHERS[row[TENSOR_CORE]]):
        if row[_OF_OTHERS[row[TENSOR_CORE], i]] > 0:
            return False
    return True


@lean
def registers_fit(row, ints):  # noqa: ANN001, ANN201
    """Whether a block is within three limits: its number of threads, registers of a thread, and registers of all threads."""
    threads, registers = threads_of(row, ints), registers_of(row, ints)
    if threads > ints[THREADS_BLOCK] or registers > ints[REGS_THREAD]:
        return False
    if row[TENSOR_CORE] == 2 and registers > WGMMA_REGISTERS:
        return False
    warps = (threads + ints[WARP] - 1) // ints[WARP]
    return (registers * ints[WARP] + 255) // 256 * 256 * ((warps + 3) // 4 * 4) <= ints[REGS_UNIT]


@lean
def fits_cpu(row, ints, limits=EVERY):  # noqa: ANN001, ANN201
    """Whether a CPU program is within those hardware limits that the bits of the int `limits` name.

    A CPU has limits on vector registers, code size, L1 tile (within L2), task tile (within a core's share of L3), packing and
    split reductions.
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
    if limits & PACKING and not is_packed_for_algorithm(row, ints):
        return False
    return limits & SPLIT == 0 or tasks_have_steps(row, ints)
