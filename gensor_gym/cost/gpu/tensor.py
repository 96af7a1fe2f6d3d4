"""Cost of one reduction step of a block on tensor cores, by mma.sync or wgmma. Compiled."""

from __future__ import annotations

import math

from gensor_gym.cost.gpu.matrix_copies import matrix_copies
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.resources import staged_row
from gensor_gym.graph.tables.geometry import (
    columns_of,
    computed_product,
    fragment,
    matrix_elements,
    matrix_rows,
    power_value,
    reduce_product,
    spatial_product,
    workers_of,
)
from gensor_gym.graph.tables.layout import MAX_AXES, SHARED_LAYOUT, TENSOR_CORE, TILE, UNROLL
from gensor_gym.graph.tables.tables import (
    CLOCK,
    INSTRUCTION_K,
    ITEM,
    MATRIX_A,
    MATRIX_B,
    MATRIX_K,
    MATRIX_M,
    MMA_PEAK,
    NUM_READS,
    PRODUCTS,
    UNITS,
    WGMMA_PEAK,
)

SCHEDULERS = 4
MMA_LATENCY = 33.0
"""Cycles from one mma.sync m16n8k16 to the next that depends on it (arXiv 2402.13499: about 32 on Hopper and Ampere,
recalled)."""
LOOP, STEP = 30.0, 20.0
"""Number of instructions of an iteration of the loop and of a step, as counted on CUDA cores (`cost/gpu/simt.py`)."""


@lean
def tensor_step(row, ints, floats):  # noqa: ANN001, ANN201
    """Return the cost of a block's step on tensor cores: (pipes, issue slots, wavefronts, arithmetic alone, waits).

    The first four are cycles; arithmetic alone is that of a block without others next to it. The waits are counted in
    latencies of memory.
    """
    points = computed_product(row, 1, ints) * reduce_product(row, 1, ints) * 2.0
    rate = floats[MMA_PEAK] if row[TENSOR_CORE] == 1 else floats[WGMMA_PEAK]
    pipes = points / (rate / ints[UNITS] / floats[CLOCK])
    if row[TENSOR_CORE] == 1:
        issue, waves, alone, waits = _mma(row, pipes, ints)
        return pipes, issue, waves, alone, waits
    pipes /= narrow_share(columns_of(row, ints))
    return pipes, STEP, _wgmma_wavefronts(row, ints), pipes, 0.0


@lean
def narrow_share(columns):  # noqa: ANN001, ANN201
    """Return the share of its full rate that a wgmma with `columns` columns reaches.

    The share is a straight line through figures of arXiv 2402.13499: 21, 38 and 63 percent for 8, 16 and 32 columns, all of it
    from 64 on.
    """
    return min(1.0, 0.06 + 0.0187 * columns)


@lean
def _mma(row, pipes, ints):  # noqa: ANN001, ANN201
    """Return the cost of a step by mma.sync: (issue slots, wavefronts, cycles of a block alone, waits for memory).

    Every warp loads its fragments of A and B again for each k of an instruction (ldmatrix: 512 bytes each; without padding or
    swizzle, rows of a power of two share few banks). Bytes of B are combined one by one. 8-bit floats that are widened
    take two conversions per register, and four sums per product are added outside tensor cores (SASS of sm_90).
    """
    warps = workers_of(row, ints)
    widened = 1.0 if ints[PRODUCTS] == 2 else 0.0
    turns = math.ceil(reduce_product(row, 1, ints) / ints[INSTRUCTION_K])
    parts = spatial_product(row, 0, ints) / 128.0 * ints[PRODUCTS]
    loads, waves, waits, others = widened * 2.0 * parts, 0.0, 0.0, STEP
    for t in range(ints[NUM_READS]):
        item = ints[ITEM + t]
        held = fragment(row, t, ints) * ints[INSTRUCTION_K] * item
        conflict = min(8.0, max(1.0, staged_row(row, t, ints) * item / 16.0)) if row[SHARED_LAYOUT] == 0 else 1.0
        loads += held / 512.0 * (16.0 if item == 1 and t == ints[MATRIX_B] else 4.0 if item == 4 else 1.0)
        loads += widened * held / 64.0
        waves += held / 128.0 * conflict * turns * warps
        instructions, stored, copied = matrix_copies(row, t, warps, ints)
        others, waves, waits = others + instructions, waves + stored, waits + copied
    rounds = math.ceil(turns * ints[INSTRUCTION_K] / (reduce_product(row, 0, ints) * power_value(row[UNROLL])))
    others += LOOP * rounds if rounds > 1 else 0.0
    issue = (turns * (parts + loads) + others) * warps / SCHEDULERS
    each = pipes / (turns * parts * warps) * SCHEDULERS
    busy = min(1.0, warps / SCHEDULERS) * min(1.0, parts * max(1.0, warps / SCHEDULERS) * each / MMA_LATENCY)
    return issue, waves, pipes / max(busy, 1e-3), waits


@lean
def _wgmma_wavefronts(row, ints):  # noqa: ANN001, ANN201
    """Return how many wavefronts a step by wgmma takes: warpgroups read rows of A and columns of B, and tiles are stored."""
    waves = 0.0
    for t in range(ints[NUM_READS]):
        read = matrix_elements(row, t, 0, ints) // row[TILE + ints[MATRIX_K]] * workers_of(row, ints)
        if t == ints[MATRIX_A]:
            read = read // row[TILE + ints[MATRIX_M]] * matrix_rows(row, 0, ints)
        waves += (read * row[TILE + MAX_AXES + ints[MATRIX_K]] + matrix_elements(row, t, 1, ints)) * ints[ITEM + t] / 128.0
    return waves
