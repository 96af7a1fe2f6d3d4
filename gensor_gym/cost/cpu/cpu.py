"""Analytic latency of a program on a CPU.

The micro-kernel is bound by FMA ports, load ports, decoding or the chain of dependent accumulators (`micro`; register-tile
balance as in oneDNN's brgemm blocking). Its data come from the cache that still holds them (`caches`). Packing, calls, imbalance
of threads and fork-join are added. The combination is our own; its constants are data (`cost.constants`), and one coefficient per
term calibrates it to a machine.
"""

from __future__ import annotations

import math

from gensor_gym.cost.constants import (
    CALL_CYCLES,
    CARRY_CYCLES,
    FAR,
    FUNCTION,
    NEAR,
    OVERLAP,
    SCATTERED_LANE,
    STORE,
    STORE_ROW,
    TASK_CYCLES,
)
from gensor_gym.cost.cpu.caches import cache_traffic
from gensor_gym.cost.cpu.copies import pack_cycles, shares
from gensor_gym.cost.cpu.matrix import is_in_tiles, tile_cycles
from gensor_gym.cost.cpu.micro import chain_cycles, fold_cycles, group_of, mean_vectors, point_cycles
from gensor_gym.cost.cpu.tiles import COLUMNS, ROWS, TASK, fill_effective, pixel_pitch, tiles_of
from gensor_gym.cost.terms import ARITHMETIC, CACHE_TERM, DRAM, EXPOSED, ISSUE, LAUNCH_TERM, STAGING, TAIL
from gensor_gym.graph.compiled import lean, outlined
from gensor_gym.graph.resources import rows_of
from gensor_gym.graph.tables.geometry import power_value, reduce_steps, tensor_bytes
from gensor_gym.graph.tables.layout import CONVOLUTION, MAX_AXES, SPATIAL_SLOTS, THREAD_SPLIT, TILE
from gensor_gym.graph.tables.tables import (
    BYTES,
    CLOCK,
    COEFFICIENT,
    COPIED,
    DRAM_BW,
    END_REDUCE,
    EPILOGUE_BYTES,
    EXTENT,
    FROZEN_READ,
    FUNCTIONS,
    GROUPED,
    L2_BW,
    L2_BYTES,
    L3_BW,
    L3_BYTES,
    LANES,
    LAUNCH,
    MMA_PEAK,
    NUM_READS,
    STRIDE,
    UNITS,
    VECTOR_SLOT,
    WINDOW,
)

CROWD, SPILLED = 24, 1.5
"""Number of accumulators beyond which a window over channels lacks registers, and the factor by which its reduction steps are
then slower. The missing registers would keep reads that taps share. A convolution with 3x3 taps, 256 channels and 14x14 pixels
took 1.41 ms with 21 accumulators, 2.0 to 2.5 ms with 28."""

ALL_REGISTERS, IN_MEMORY = 31, 4.0
"""Vectors that fit in the registers of AVX-512 next to one scalar, and our estimate of how many times as long other sums take.

Only machines with tile registers have legal programs with more vectors, which are slow where they multiply in vectors.
"""


@lean
def _spills(row, accumulators, ints):  # noqa: ANN001, ANN201
    """Whether a convolution with constant weights and vectors over channels is slower, because it lacks registers.

    False for all other operators: the model's constants were fitted without this effect.
    """
    return ints[FROZEN_READ + 1] == 1 and ints[WINDOW] == 1 and row[CONVOLUTION] == 1 and accumulators > CROWD


@lean
def _store_cycles(row, slot, rows, vectors, ints, floats):  # noqa: ANN001, ANN201
    """Return the cycles to initialise the accumulators of a register tile and to store them at the end."""
    if slot >= SPATIAL_SLOTS:
        return rows * vectors * floats[STORE] + fold_cycles(rows, vectors, ints, floats)
    if row[CONVOLUTION] == 2:
        pixels = row[TILE + ROWS] * row[TILE + COLUMNS]
        pieces = 1.0 + pixels / pixel_pitch(ints) if ints[COPIED] else 1.0
        return rows * (2.0 * vectors * floats[STORE] + pieces * floats[STORE_ROW])
    out_stride = ints[STRIDE + ints[NUM_READS] * MAX_AXES + slot]
    return rows * vectors * (floats[STORE] if out_stride <= 1 else ints[LANES] * floats[SCATTERED_LANE])


@lean
def _scattered_carry(slot, ints, floats):  # noqa: ANN001, ANN201
    """Return the extra cycles to keep a vector of partial sums in an output where its lanes are not contiguous.

    0 for operators without constant weights: the model's constants were fitted without these cycles.
    """
    apart = slot < SPATIAL_SLOTS and ints[STRIDE + ints[NUM_READS] * MAX_AXES + slot] > 1
    return 2.0 * ints[LANES] * floats[SCATTERED_LANE] if apart and ints[FROZEN_READ + 1] == 1 else 0.0


@lean
def _compute_cycles(row, slot, ints, floats):  # noqa: ANN001, ANN201
    """Return the cycles of all threads together as (FMA, issue, stalls and calls)."""
    rows, vectors = rows_of(row, slot, ints), mean_vectors(row, slot, ints)
    if is_in_tiles(row, slot, ints, floats):
        fma, issue = tile_cycles(row, slot, vectors, ints, floats)
    else:
        fma, issue = point_cycles(row, slot, vectors, ints, floats)
        if floats[MMA_PEAK] > 0.0 and rows * vectors + vectors > ALL_REGISTERS:
            fma, issue = IN_MEMORY * fma, IN_MEMORY * issue
    if _spills(row, rows * vectors, ints):
        fma, issue = SPILLED * fma, SPILLED * issue
    points = 1.0
    group = group_of(row, slot, ints)
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        tile = row[TILE + axis] if axis == slot else ints[GROUPED] if axis == group else 1
        points *= (ints[EXTENT + axis] + tile - 1) // tile
    tiles = tiles_of(row, 0, ints) * 1.0
    passes = reduce_steps(row, 1, ints)
    carried = floats[CARRY_CYCLES] + _scattered_carry(slot, ints, floats)
    calls = passes * floats[CALL_CYCLES] + (passes - 1.0) * rows * vectors * carried
    calls += _store_cycles(row, slot, rows, vectors, ints, floats)
    if floats[FUNCTIONS] > 0.0:
        calls += rows * vectors * floats[FUNCTION]
    stalls = points * max(0.0, chain_cycles(row, slot, ints, floats) - max(fma, issue))
    return tiles * points * fma, tiles * points * issue, tiles * (stalls + calls)


@outlined
def latency_cpu(written, ints, floats, terms, row, walk):  # noqa: ANN001, ANN201
    """Predict the time of a legal CPU program in seconds.

    `written` is the program's row. `terms` receives the terms of the time. Working memory: `row` int32 [ROW] for the generated
    code's tiles, `walk` float64 [WALK] for the walk through the caches.
    """
    slot = ints[VECTOR_SLOT + written[CONVOLUTION]]
    fill_effective(written, slot, ints, row)
    units, clock = ints[UNITS], floats[CLOCK]
    fma, issue, stalls = _compute_cycles(row, slot, ints, floats)
    pack = pack_cycles(row, slot, ints, floats)
    tasks = tiles_of(row, TASK, ints) * power_value(row[THREAD_SPLIT])
    stalls += tasks * floats[TASK_CYCLES]
    imbalance = math.ceil(tasks / units) * units / tasks
    near, far, beyond = cache_traffic(row, slot, ints, floats, walk)

    arithmetic = fma / clock / units * floats[COEFFICIENT + ARITHMETIC]
    loads = issue / clock / units * floats[COEFFICIENT + ISSUE]
    staging = pack / clock / units * floats[COEFFICIENT + STAGING]
    far += floats[EPILOGUE_BYTES] / units
    inner = max(0.0, near - far) * floats[NEAR] / floats[L2_BW]
    cache = (inner + far * floats[FAR] / floats[L3_BW]) * units * floats[COEFFICIENT + CACHE_TERM]
    if floats[BYTES] > max(ints[L3_BYTES], ints[L2_BYTES] * units):
        beyond = max(beyond, floats[BYTES] / units)
    dram = beyond * units / floats[DRAM_BW] * floats[COEFFICIENT + DRAM]
    exposed = stalls / clock / units * floats[COEFFICIENT + EXPOSED]
    compute = max(arithmetic, loads) + exposed + staging
    memory = max(cache, dram)
    balanced = max(compute, memory) + floats[OVERLAP] * min(compute, memory)
    total = balanced * imbalance
    tail = total - balanced
    forks = 2.0 if shares(row, ints) else 1.0
    launch = floats[LAUNCH] * forks * floats[COEFFICIENT + LAUNCH_TERM]
    if row[THREAD_SPLIT] > 0:
        partial = 2.0 * tensor_bytes(ints[NUM_READS], ints) * power_value(row[THREAD_SPLIT])
        launch += floats[LAUNCH] + partial / floats[L2_BW]
    terms[ARITHMETIC], terms[ISSUE], terms[STAGING], terms[CACHE_TERM] = arithmetic, loads, staging, cache
    terms[DRAM], terms[EXPOSED], terms[TAIL], terms[LAUNCH_TERM] = dram, exposed, tail, launch
    return total + launch
