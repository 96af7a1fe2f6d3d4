"""Analytic latency of a program on a CPU.

The micro-kernel is bound by FMA ports, load ports or the chain of dependent accumulators (register-tile balance as in
oneDNN's brgemm blocking); tiles that do not fit their cache take their operands from the next one; packing, threads out of
balance and fork-join are added. The combination is our own; its constants are data
(`cost.constants`), and one coefficient per term calibrates it to a machine.
"""

from __future__ import annotations

import math

import numpy as np

from gensor_gym.cost.constants import (
    CALL_CYCLES,
    CARRY_NEAR,
    CARRY_PAGE,
    CARRY_ROW,
    GATHER_LOADS,
    GUARDED,
    HORIZONTAL_SUM,
    LOOP_OVERHEAD,
    OVERLAP,
    PAGE_STRIDE,
    PREFETCH_RELIEF,
    ROW_STRIDE,
    SCATTERED_LANE,
)
from gensor_gym.cost.cpu_copies import is_contiguous, is_packed, pack_cycles, shares
from gensor_gym.cost.cpu_tiles import ROWS, fill_effective, tiles_of
from gensor_gym.cost.terms import ARITHMETIC, CACHE, DRAM, EXPOSED, ISSUE, LAUNCH_TERM, STAGING, TAIL
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.layout import MAX_AXES, MAX_DIMS, ROW, SPATIAL_SLOTS, TILE
from gensor_gym.graph.resources import (
    CONVOLUTION,
    PREFETCH,
    THREAD_SPLIT,
    UNROLL,
    accumulators_of,
    footprint,
    power_value,
    reduce_product,
    reduce_steps,
    tile_bytes,
    vectors_along,
)
from gensor_gym.graph.tables import (
    BYTES,
    CLOCK,
    COEF,
    COEFFICIENT,
    DRAM_BW,
    END_REDUCE,
    EPILOGUE_BYTES,
    EXTENT,
    FIRST_SPATIAL,
    ITEM,
    L1_BYTES,
    L2_BW,
    L2_BYTES,
    L3_BW,
    L3_BYTES,
    LANES,
    LAUNCH,
    NUM_DIMS,
    NUM_READS,
    PADDED,
    PEAK,
    STRIDE,
    UNITS,
    VECTOR_SLOT,
    VIEW,
)

FMA_CHAIN = 4.0
"""Cycles of a dependent FMA (Skylake to Zen 5)."""
LOADS_PER_CYCLE = 2.0


@compiled
def loads_per_point(row, tensor, slot, ints, floats):  # noqa: ANN001, ANN201
    """Load instructions of a read for one reduction point of the register tile: vectors, broadcasts or gathered lanes."""
    rows = 1.0
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        fused = axis == slot or (row[CONVOLUTION] == 2 and axis == ROWS)
        if not fused and ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            rows *= row[TILE + axis]
    if ints[STRIDE + tensor * MAX_AXES + slot] == 0:
        return rows
    if is_contiguous(row, tensor, slot, ints):
        return rows * vectors_along(row, ints)
    return rows * row[TILE + slot] * floats[GATHER_LOADS]


@compiled
def micro_cycles(row, slot, ints, floats):  # noqa: ANN001, ANN201
    """Cycles per reduction point of a register tile: (FMA ports, load ports and decode, dependent chain)."""
    lanes = ints[LANES]
    per_cycle = floats[PEAK] / (ints[UNITS] * floats[CLOCK] * 2.0 * lanes)
    accumulators = accumulators_of(row, ints) * 1.0
    loads = 0.0
    for t in range(ints[NUM_READS]):
        loads += loads_per_point(row, t, slot, ints, floats)
    unrolled = reduce_product(row, 0, ints) * power_value(row[UNROLL])
    if slot >= SPATIAL_SLOTS:
        unrolled = max(1, unrolled // row[TILE + slot])
    overhead = floats[LOOP_OVERHEAD] / unrolled
    fma = accumulators / per_cycle
    issue = max(loads / LOADS_PER_CYCLE, (accumulators + loads + overhead) / 4.0) + overhead / 2.0
    chain = FMA_CHAIN if ints[END_REDUCE] > SPATIAL_SLOTS else 0.0
    return fma, issue, chain


@compiled
def stride_penalty(row, tensor, slot, ints, floats):  # noqa: ANN001, ANN201
    """Factor on an unpacked operand whose consecutive rows are a page or more apart (TLB, cache-set conflicts)."""
    if is_packed(row, tensor) or ints[STRIDE + tensor * MAX_AXES + slot] != 1:
        return 1.0
    pitch = ints[VIEW + tensor * MAX_DIMS + ints[NUM_DIMS + tensor] - 1] * ints[ITEM + tensor]
    if slot >= SPATIAL_SLOTS or ints[NUM_DIMS + tensor] == 1 or pitch < 1024:
        return 1.0
    return floats[PAGE_STRIDE] if pitch % 4096 == 0 else floats[ROW_STRIDE]


@compiled
def edge_share(row, tensor, ints):  # noqa: ANN001, ANN201
    """Share of register tiles that touch the padding of an unpacked read: they run guarded, element by element."""
    if ints[PADDED + tensor] == 0 or is_packed(row, tensor):
        return 0.0
    inside = 1.0
    for d in range(ints[NUM_DIMS + tensor]):
        at = COEF + (tensor * MAX_DIMS + d) * MAX_AXES
        window = False
        for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
            window = window or (ints[at + axis] != 0 and ints[EXTENT + axis] > 1)
        for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
            if window and ints[at + axis] != 0:
                tile = row[TILE + axis]
                count = (ints[EXTENT + axis] + tile - 1) // tile
                inside *= max(0.0, 1.0 - 2.0 / count)
    return 1.0 - inside


@compiled
def carry_cycles(ints, floats):  # noqa: ANN001, ANN201
    """Cycles to carry one vector of partial sums through the output: rows a power-of-two pitch apart share cache sets."""
    out = ints[NUM_READS]
    pitch = ints[VIEW + out * MAX_DIMS + ints[NUM_DIMS + out] - 1] * ints[ITEM + out]
    if pitch % 4096 == 0:
        return floats[CARRY_PAGE]
    return floats[CARRY_ROW] if pitch >= 1024 else floats[CARRY_NEAR]


@compiled
def level_traffic(row, level, ints):  # noqa: ANN001, ANN201
    """Bytes read into a cache when every tile of a level brings in its reads once, over the whole operator."""
    steps = tiles_of(row, level, ints) * 1.0
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        tile = row[TILE + level * MAX_AXES + axis]
        steps *= (ints[EXTENT + axis] + tile - 1) // tile
    total = 0.0
    for t in range(ints[NUM_READS]):
        total += steps * min(footprint(row, t, level, ints), _tensor_elements(t, ints)) * ints[ITEM + t]
    return total


@compiled
def _tensor_elements(tensor, ints):  # noqa: ANN001, ANN201
    """Elements of a tensor."""
    size = 1
    for d in range(ints[NUM_DIMS + tensor]):
        size *= ints[VIEW + tensor * MAX_DIMS + d]
    return size


@compiled
def output_traffic(row, ints):  # noqa: ANN001, ANN201
    """Bytes of partial sums carried through the output by splits of the reduction, and of the final store."""
    out = ints[NUM_READS]
    passes = reduce_steps(row, 1, ints)
    return _tensor_elements(out, ints) * ints[ITEM + out] * (2.0 * passes - 1.0)


@compiled
def _compute_cycles(row, slot, ints, floats):  # noqa: ANN001, ANN201
    """Cycles over all threads: (FMA, issue, stalls and calls)."""
    fma, issue, chain = micro_cycles(row, slot, ints, floats)
    penalty = 1.0
    for t in range(ints[NUM_READS]):
        penalty = max(penalty, stride_penalty(row, t, slot, ints, floats))
        penalty *= 1.0 + (floats[GUARDED] - 1.0) * edge_share(row, t, ints)
    if row[PREFETCH] > 0 and penalty > 1.0:
        penalty = 1.0 + floats[PREFETCH_RELIEF] * (penalty - 1.0)
    points = 1.0
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        tile = row[TILE + axis] if axis == slot else 1
        points *= (ints[EXTENT + axis] + tile - 1) // tile
    tiles = tiles_of(row, 0, ints) * 1.0
    accumulators = accumulators_of(row, ints)
    out_stride = ints[STRIDE + ints[NUM_READS] * MAX_AXES + slot]
    store = accumulators * (1.0 if out_stride <= 1 else ints[LANES] * floats[SCATTERED_LANE])
    if slot >= SPATIAL_SLOTS:
        store = accumulators * floats[HORIZONTAL_SUM]
    passes = reduce_steps(row, 1, ints)
    calls = tiles * (passes * floats[CALL_CYCLES] + (passes - 1.0) * accumulators * carry_cycles(ints, floats) + store)
    busy = max(fma, issue * penalty)
    stalls = tiles * points * max(0.0, chain - busy)
    return tiles * points * fma, tiles * points * issue * penalty, stalls + calls


@compiled
def _traffic(row, ints, floats):  # noqa: ANN001, ANN201
    """Bytes into L1 from L2, into L2 from L3, and from DRAM: a tile that overflows its cache leaves its traffic to the next."""
    in_l1 = tile_bytes(row, 1, ints) <= ints[L1_BYTES]
    in_l2 = tile_bytes(row, 2, ints) <= ints[L2_BYTES]
    near = level_traffic(row, 1 if in_l1 else 0, ints)
    outputs = output_traffic(row, ints) + floats[EPILOGUE_BYTES]
    far = level_traffic(row, 2 if in_l2 else 1, ints) + outputs
    if floats[BYTES] <= max(ints[L3_BYTES], ints[L2_BYTES] * ints[UNITS]):
        return near, far, 0.0
    return near, far, max(level_traffic(row, 2, ints) + outputs, floats[BYTES])


@compiled
def latency_cpu(written, ints, floats, terms):  # noqa: ANN001, ANN201
    """Seconds of a legal program; fills `terms`."""
    slot = ints[VECTOR_SLOT + written[CONVOLUTION]]
    row = np.empty(ROW, dtype=np.int32)
    fill_effective(written, slot, ints, row)
    units, clock = ints[UNITS], floats[CLOCK]
    fma, issue, stalls = _compute_cycles(row, slot, ints, floats)
    pack = pack_cycles(row, slot, ints, floats)
    tasks = tiles_of(row, 2, ints) * power_value(row[THREAD_SPLIT])
    imbalance = math.ceil(tasks / units) * units / tasks

    near, far, dram_bytes = _traffic(row, ints, floats)

    arithmetic = fma / clock / units * floats[COEFFICIENT + ARITHMETIC]
    loads = issue / clock / units * floats[COEFFICIENT + ISSUE]
    staging = pack / clock / units * floats[COEFFICIENT + STAGING]
    cache = (near / floats[L2_BW] + far / floats[L3_BW]) * floats[COEFFICIENT + CACHE]
    dram = dram_bytes / floats[DRAM_BW] * floats[COEFFICIENT + DRAM]
    exposed = stalls / clock / units * floats[COEFFICIENT + EXPOSED]
    compute = max(arithmetic, loads) + exposed + staging
    memory = max(cache, dram)
    balanced = max(compute, memory) + floats[OVERLAP] * min(compute, memory)
    total = balanced * imbalance
    tail = total - balanced
    forks = 2.0 if shares(row, ints) else 1.0
    launch = floats[LAUNCH] * forks * floats[COEFFICIENT + LAUNCH_TERM]
    if row[THREAD_SPLIT] > 0:
        partial = (
            2.0
            * _tensor_elements(ints[NUM_READS], ints)
            * ints[ITEM + ints[NUM_READS]]
            * power_value(row[THREAD_SPLIT])
        )
        launch += floats[LAUNCH] + partial / floats[L2_BW]
    terms[ARITHMETIC], terms[ISSUE], terms[STAGING], terms[CACHE] = arithmetic, loads, staging, cache
    terms[DRAM], terms[EXPOSED], terms[TAIL], terms[LAUNCH_TERM] = dram, exposed, tail, launch
    return total + launch
