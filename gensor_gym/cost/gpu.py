"""Analytic latency of a program on a GPU.

Waves of resident blocks run the reduction step by step. A step costs the busiest of FMA pipes, issue slots and
shared-memory wavefronts, or the exposed latency of its loads where too few blocks are resident to hide it; the device as a
whole is bounded by L2 and DRAM traffic. Structure and constants: occupancy rules of cuda_occupancy.h; issue-slot law and
wavefront counts as derived from disassembled SGEMM kernels; Little's law for bytes in flight. The way they are put
together is our own; it is calibrated against measurements by the coefficients (one per term).
"""

from __future__ import annotations

import math

from gensor_gym.cost.terms import ARITHMETIC, CACHE, DRAM, EXPOSED, ISSUE, LAUNCH_TERM, STAGING, TAIL
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.layout import MAX_AXES, MAX_DIMS, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.graph.resources import (
    RASTER,
    REDUCE_THREADS,
    SHARED_LAYOUT,
    SPLIT_K,
    UNROLL,
    VECTOR,
    box_length,
    box_width,
    footprint,
    fragment,
    power_value,
    reduce_product,
    reduce_steps,
    registers_of,
    shared_bytes_of,
    spatial_product,
    threads_of,
)
from gensor_gym.graph.tables import (
    BLOCKS_UNIT,
    BYTES,
    CLOCK,
    COEF,
    COEFFICIENT,
    DRAM_BW,
    DRAM_LATENCY,
    END_REDUCE,
    EPILOGUE_BYTES,
    EXTENT,
    FIRST_SPATIAL,
    ITEM,
    L2_BW,
    L2_BYTES,
    L2_LATENCY,
    LANES,
    LAUNCH,
    NUM_DIMS,
    NUM_READS,
    PADDED,
    REGS_UNIT,
    SHARED_GRAIN,
    SHARED_INNER,
    SHARED_LATENCY,
    SHARED_RESERVED,
    SHARED_UNIT,
    STAGED,
    STRIDE,
    THREADS_UNIT,
    UNITS,
    VIEW,
)
from gensor_gym.hardware import occupancy

blocks_per_unit = lean(occupancy.blocks_per_unit)

SECTOR = 32
"""Bytes of the smallest global-memory transfer."""
SCHEDULERS = 4
FMA_LATENCY = 4.0
"""Cycles of a dependent FFMA since Volta."""


@lean
def sectors(width, item, aligned):  # noqa: ANN001, ANN201
    """Bytes moved for a contiguous run of `width` elements, in 32-byte sectors; half a sector more when unaligned."""
    whole = math.ceil(width * item / SECTOR) * SECTOR
    return whole if aligned else whole + 0.5 * SECTOR


@lean
def lanes_along(row, axis, ints):  # noqa: ANN001, ANN201
    """Threads of one warp that differ along a spatial axis (innermost axis fills the warp first)."""
    left = 32
    if row[REDUCE_THREADS] > 0:
        left = max(1, 32 >> row[REDUCE_THREADS])
    for at in range(SPATIAL_SLOTS - 1, axis, -1):
        left //= max(1, row[TILE + MAX_AXES + at] // row[TILE + at])
    return max(1, min(left, row[TILE + MAX_AXES + axis] // row[TILE + axis]))


@lean
def contiguous_run(row, tensor, ints):  # noqa: ANN001, ANN201
    """Elements next to each other that one thread reads of a tensor, in shared memory where it is staged there.

    The inner tile of the spatial axis that moves the contiguous dimension by one.
    """
    dimension = ints[SHARED_INNER + tensor] if ints[STAGED + tensor] == 1 else ints[NUM_DIMS + tensor] - 1
    at = COEF + (tensor * MAX_DIMS + dimension) * MAX_AXES
    for axis in range(SPATIAL_SLOTS - 1, ints[FIRST_SPATIAL] - 1, -1):
        if ints[at + axis] == 1 and ints[EXTENT + axis] > 1:
            return row[TILE + axis] // row[VTHREAD + axis]
    return 1


@lean
def shared_wavefronts(row, tensor, ints):  # noqa: ANN001, ANN201
    """Wavefronts of 128 bytes for one warp to load one thread fragment of a staged tensor from shared memory.

    Distinct words over the warp per load, and the conflict degree of the lanes' stride in banks of 4 bytes.
    """
    run = min(4, contiguous_run(row, tensor, ints))
    while run & (run - 1):
        run -= 1
    loads = math.ceil(fragment(row, tensor, ints) / run)
    distinct, stride_words = 1, 1
    dimension = ints[SHARED_INNER + tensor]
    pitch = box_length(row, tensor, dimension, 1, ints) + (4 if row[SHARED_LAYOUT] == 1 else 0)
    last = COEF + (tensor * MAX_DIMS + dimension) * MAX_AXES
    for axis in range(SPATIAL_SLOTS - 1, ints[FIRST_SPATIAL] - 1, -1):
        if ints[STRIDE + tensor * MAX_AXES + axis] == 0:
            continue
        lanes = lanes_along(row, axis, ints)
        if lanes > 1:
            if distinct == 1:
                inner = row[TILE + axis] // row[VTHREAD + axis]
                stride_words = inner * (ints[last + axis] if ints[last + axis] > 0 else pitch)
            distinct *= lanes
    words = distinct * run
    reach = 32 // math.gcd(max(stride_words, 1), 32) * run
    conflict = max(1.0, min(distinct, 32 // run) * run / min(32, max(reach, run)))
    return loads * max(1.0, words / 32.0) * min(conflict, 32.0)


@lean
def warp_sectors(row, tensor, ints):  # noqa: ANN001, ANN201
    """Bytes of sectors touched per element used when a warp reads a tensor straight from global memory."""
    fast = 1
    if row[REDUCE_THREADS] > 0:
        axis = ints[END_REDUCE] - 1
        stride = ints[STRIDE + tensor * MAX_AXES + axis] * row[TILE + axis]
        fast = min(32, power_value(row[REDUCE_THREADS]))
    else:
        axis = SPATIAL_SLOTS - 1
        stride = ints[STRIDE + tensor * MAX_AXES + axis] * (row[TILE + axis] // row[VTHREAD + axis])
        fast = lanes_along(row, axis, ints)
    item = ints[ITEM + tensor]
    run = max(1, contiguous_run(row, tensor, ints))
    if stride == 0:
        return item * 1.0
    if fast == 1:  # a lone lane per row: each load opens its own sector, reused only through L1
        return max(item * 1.0, SECTOR / min(8.0, run * 1.0 if run > 1 else 2.0))
    waste = max(1.0, min(stride / run, SECTOR / (item * run)))
    return item * waste


@lean
def block_bytes(row, tensor, ints):  # noqa: ANN001, ANN201
    """Bytes that one block asks of L2 for one reduction step of a read, sector by sector."""
    if ints[STAGED + tensor] == 1:
        width = box_width(row, tensor, 1, ints)
        box = footprint(row, tensor, 1, ints)
        full = ints[VIEW + tensor * MAX_DIMS + ints[NUM_DIMS + tensor] - 1]
        whole_rows = width >= full
        per_row = (
            width * ints[ITEM + tensor]
            if whole_rows
            else sectors(width, ints[ITEM + tensor], ints[PADDED + tensor] == 0)
        )
        return box / width * per_row
    return footprint(row, tensor, 1, ints) * warp_sectors(row, tensor, ints)


@lean
def wave_bytes(row, tensor, resident, ints):  # noqa: ANN001, ANN201
    """Distinct bytes of a tensor that the blocks of one wave touch over the whole reduction.

    Blocks follow each other along the innermost axis first; with raster R they go R rows deep before the next column.
    """
    left = max(1, resident)
    size = ints[ITEM + tensor] * 1.0
    inner = SPATIAL_SLOTS - 1
    rows = power_value(row[RASTER])
    for axis in range(SPATIAL_SLOTS - 1, ints[FIRST_SPATIAL] - 1, -1):
        tile = row[TILE + MAX_AXES + axis]
        grid = (ints[EXTENT + axis] + tile - 1) // tile
        if axis == inner and rows > 1:
            count = max(1, min(grid, left // rows))
        else:
            count = min(grid, left)
        left = max(1, left // count)
        if ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            size *= min(ints[EXTENT + axis], count * tile)
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        if ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            size *= ints[EXTENT + axis]
    return min(size, tensor_bytes(tensor, ints))


@lean
def tensor_bytes(tensor, ints):  # noqa: ANN001, ANN201
    """Bytes of a tensor."""
    size = ints[ITEM + tensor] * 1.0
    for d in range(ints[NUM_DIMS + tensor]):
        size *= ints[VIEW + tensor * MAX_DIMS + d]
    return size


@lean
def grid_blocks(row, ints):  # noqa: ANN001, ANN201
    """Blocks of the launch."""
    blocks = power_value(row[SPLIT_K])
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        tile = row[TILE + MAX_AXES + axis]
        blocks *= (ints[EXTENT + axis] + tile - 1) // tile
    return blocks


@lean
def resident_blocks(row, ints):  # noqa: ANN001, ANN201
    """Blocks that one multiprocessor holds at once (exact occupancy rules)."""
    return blocks_per_unit(
        threads_of(row, ints), registers_of(row, ints), shared_bytes_of(row, ints), ints[THREADS_UNIT],
        ints[BLOCKS_UNIT], ints[REGS_UNIT], ints[SHARED_UNIT], ints[SHARED_GRAIN], ints[SHARED_RESERVED],
    )  # fmt: skip


@lean
def latency_gpu(row, ints, floats, terms):  # noqa: ANN001, ANN201
    """Seconds of a legal program; fills `terms`. Infinite if no block can be resident."""
    resident = resident_blocks(row, ints)
    if resident <= 0:
        return math.inf
    blocks, units, clock = grid_blocks(row, ints), ints[UNITS], floats[CLOCK]
    steps = math.ceil(reduce_steps(row, 1, ints) / power_value(row[SPLIT_K]))
    fma, issue, shared, chain = _step(row, (threads_of(row, ints) + 31) // 32, ints)
    fma *= floats[COEFFICIENT + ARITHMETIC]
    issue *= floats[COEFFICIENT + ISSUE]
    shared *= floats[COEFFICIENT + STAGING]
    traffic, unique, in_flight = _traffic(row, blocks, resident, steps, ints)
    traffic += floats[EPILOGUE_BYTES]
    unique = max(unique + floats[EPILOGUE_BYTES], floats[BYTES])
    latency = floats[DRAM_LATENCY] if unique > 0.5 * ints[L2_BYTES] else floats[L2_LATENCY]
    wait = (latency * clock + 3 * floats[SHARED_LATENCY] * clock) * floats[COEFFICIENT + EXPOSED]
    busy = max(fma, max(issue, shared))
    ramp = wait + 40.0 + 8.0 * spatial_product(row, 0, ints)
    cycles, ideal, uneven = _waves(blocks, units, resident, steps, busy, max(chain, busy) + wait, ramp)
    flying = min(blocks, units * resident) * in_flight
    cache = traffic / min(floats[L2_BW], max(flying / floats[L2_LATENCY], 1.0)) * floats[COEFFICIENT + CACHE]
    dram = unique / min(floats[DRAM_BW], max(flying / floats[DRAM_LATENCY], 1.0)) * floats[COEFFICIENT + DRAM]
    launch = floats[LAUNCH] * floats[COEFFICIENT + LAUNCH_TERM]
    if row[SPLIT_K] > 0:  # a second kernel adds the parts up
        partial = 2.0 * tensor_bytes(ints[NUM_READS], ints) * power_value(row[SPLIT_K])
        launch += floats[LAUNCH] + partial / (floats[DRAM_BW] if partial > ints[L2_BYTES] else floats[L2_BW])
    terms[ARITHMETIC] = blocks * fma * steps / units / clock
    terms[ISSUE] = blocks * issue * steps / units / clock
    terms[STAGING] = blocks * shared * steps / units / clock
    terms[TAIL] = uneven / clock
    terms[EXPOSED] = max(0.0, max(0.0, cycles / clock - ideal / clock) - uneven / clock)
    terms[CACHE], terms[DRAM], terms[LAUNCH_TERM] = cache, dram, launch
    # memory and arithmetic overlap well but not wholly: a quarter of the smaller bound is added
    inside, outside = cycles / clock, max(dram, cache)
    return max(inside, outside) + 0.25 * min(inside, outside) + launch


@lean
def _waves(blocks, units, resident, steps, busy, alone, ramp):  # noqa: ANN001, ANN201
    """Cycles of all blocks on the multiprocessors, (in waves, were they spread evenly, lost to an uneven last wave).

    A step takes a block `busy` cycles beside others and `alone` by itself; a wave starts with `ramp` cycles.
    """
    full = blocks // (units * resident)
    rest = blocks - full * units * resident
    last = (rest + units - 1) // units
    wave = max(resident * busy, alone) * steps
    tail = max(last * busy, alone) * steps if last > 0 else 0.0
    ideal = blocks * busy * steps / units
    cycles = full * (wave + ramp) + (tail + ramp if last > 0 else 0.0)
    return cycles, ideal, max(0.0, busy * steps * (full * resident + last) - ideal)


@lean
def _step(row, warps, ints):  # noqa: ANN001, ANN201
    """Cycles one block needs for one step: (FMA pipes, issue slots, shared wavefronts, alone on the multiprocessor)."""
    threads = threads_of(row, ints)
    share = power_value(row[REDUCE_THREADS])
    points = math.ceil(reduce_product(row, 1, ints) / share)
    tile = spatial_product(row, 0, ints)
    width = power_value(row[VECTOR])
    maths = tile * points * warps * 1.0
    loads, waves, extra = 0.0, 0.0, 0.0
    for t in range(ints[NUM_READS]):
        part = fragment(row, t, ints)
        run = max(1, min(4, contiguous_run(row, t, ints)))
        loads += (
            math.ceil(part / run) * points * warps * (3.0 if ints[STAGED + t] == 0 and ints[PADDED + t] == 1 else 1.0)
        )
        if ints[STAGED + t] == 1:
            box = footprint(row, t, 1, ints)
            waves += shared_wavefronts(row, t, ints) * points * warps + box / 32.0
            extra += math.ceil(box / (threads * width)) * (2.0 + 6.0 / width + 4.0 * ints[PADDED + t]) * warps
    unrolled = reduce_product(row, 0, ints) * power_value(row[UNROLL])
    loop = 4.0 * math.ceil(points / unrolled) * warps
    fma = maths * 32.0 / ints[LANES]
    issue = (maths + loads + extra + loop + 20.0 * warps) / SCHEDULERS
    independent = min(1.0, warps / SCHEDULERS * tile / FMA_LATENCY)
    return fma, issue, waves, max(fma, issue) / max(independent, 1e-3)


@lean
def _traffic(row, blocks, resident, steps, ints):  # noqa: ANN001, ANN201
    """(bytes asked of L2, bytes that must come from DRAM, bytes in flight per block)."""
    traffic, unique, in_flight = 0.0, 0.0, 0.0
    waves = math.ceil(blocks / (ints[UNITS] * resident))
    width = power_value(row[VECTOR])
    for t in range(ints[NUM_READS]):
        per_step = block_bytes(row, t, ints)
        asked = per_step * steps * blocks
        traffic += asked
        size = tensor_bytes(t, ints)
        in_cache = size <= 0.6 * ints[L2_BYTES]
        union = (
            size
            if in_cache
            else max(size if waves == 1 else 0.0, waves * wave_bytes(row, t, ints[UNITS] * resident, ints))
        )
        unique += min(union, max(asked, 0.0))
        run = width if ints[STAGED + t] == 1 else max(1, min(4, contiguous_run(row, t, ints)))
        in_flight += min(per_step, threads_of(row, ints) * run * 4.0 * min(8.0, max(1.0, fragment(row, t, ints) * 1.0)))
    out = ints[NUM_READS]
    written = tensor_bytes(out, ints)
    stretch = warp_sectors(row, out, ints) / ints[ITEM + out]
    traffic += written * stretch
    unique += written * min(stretch, 2.0)
    return traffic, unique, max(in_flight, 32.0)
