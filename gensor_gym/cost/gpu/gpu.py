"""Analytic latency of a program on a GPU.

Waves of resident blocks run the reduction step by step. A step costs the busiest of arithmetic pipes, issue slots and
shared-memory wavefronts, or the exposed latency of its loads if neither other blocks nor more stages hide it. L2 and DRAM traffic
bound the device as a whole. Structure and constants: occupancy rules of cuda_occupancy.h; instructions and wavefronts as derived
from disassembled SGEMM kernels; Little's law for bytes in flight; tensor-core rates of microbenchmarks; terms added after
comparison with tables recorded on an H100 (`direct`, `matrix_copies`). Their combination is our own. Coefficients (one per term)
can be fitted to measurements; no fit for a GPU ships.
"""

from __future__ import annotations

import math

from gensor_gym.cost.gpu.direct import is_anything_staged
from gensor_gym.cost.gpu.shares import addition, shares_steps, sharing
from gensor_gym.cost.gpu.simt import simt_step
from gensor_gym.cost.gpu.tensor import tensor_step
from gensor_gym.cost.gpu.traffic import grid_blocks, traffic_of
from gensor_gym.cost.terms import ARITHMETIC, CACHE_TERM, DRAM, EXPOSED, ISSUE, LAUNCH_TERM, STAGING, TAIL
from gensor_gym.graph.compiled import lean, outlined
from gensor_gym.graph.resources import registers_of, shared_bytes_of, threads_of
from gensor_gym.graph.tables.geometry import folded_bytes, power_value, reduce_steps, spatial_product, tensor_bytes
from gensor_gym.graph.tables.layout import (
    MAX_AXES,
    MAX_DIMS,
    PERSISTENT,
    REGISTER_BUFFER,
    SPATIAL_SLOTS,
    SPLIT_K,
    STAGES,
    TENSOR_CORE,
)
from gensor_gym.graph.tables.tables import (
    BLOCKS_UNIT,
    BYTES,
    CLOCK,
    COEFFICIENT,
    DRAM_BW,
    DRAM_LATENCY,
    END_REDUCE,
    EPILOGUE_BYTES,
    EXTENT,
    FIRST_SPATIAL,
    FOLDED,
    ITEM,
    L2_BW,
    L2_BYTES,
    L2_LATENCY,
    LAUNCH,
    MATRIX_B,
    MATRIX_K,
    MOVED,
    NUM_DIMS,
    NUM_READS,
    PADDED,
    PAIR_WIDTH,
    PAIRS,
    REGS_UNIT,
    SHARED_GRAIN,
    SHARED_LATENCY,
    SHARED_RESERVED,
    SHARED_UNIT,
    STRIDE,
    THREADS_UNIT,
    UNITS,
    VIEW,
)
from gensor_gym.hardware import occupancy

blocks_per_unit = lean(occupancy.blocks_per_unit)

OVERLAP = 0.25
"""Share of the shorter of arithmetic and memory time that is added to the longer, with one stage. Every further stage halves the
share."""
DISPATCH = 1.2
"""Cycles in which the device begins one block: 0.60 to 0.62 ns each in grids of 49 thousand to 3.1 million blocks of exp
(train)."""
BARRIER = 30.0
"""Cycles of a barrier of a block, which ends every step."""


@lean
def resident_blocks(row, ints):  # noqa: ANN001, ANN201
    """Return how many blocks one multiprocessor runs at once, by exact occupancy rules."""
    return resident_with(row, shared_bytes_of(row, ints), ints)


@lean
def resident_with(row, shared, ints):  # noqa: ANN001, ANN201
    """Return how many blocks one multiprocessor runs at once, if a block has `shared` bytes of shared memory."""
    return blocks_per_unit(
        threads_of(row, ints), registers_of(row, ints), shared, ints[THREADS_UNIT],
        ints[BLOCKS_UNIT], ints[REGS_UNIT], ints[SHARED_UNIT], ints[SHARED_GRAIN], ints[SHARED_RESERVED],
    )  # fmt: skip


@outlined
def latency_gpu(row, ints, floats, terms):  # noqa: ANN001, ANN201
    """Predict the seconds of a legal program, infinite if no block can be resident. `terms` receives the terms."""
    in_shared = shared_bytes_of(row, ints)
    resident = resident_with(row, in_shared, ints)
    if resident <= 0:
        return math.inf
    units, clock = ints[UNITS], floats[CLOCK]
    blocks, steps, ends, adding = _shared_out(row, units * resident, ints, floats)
    if row[TENSOR_CORE] == 0:
        fma, issue, shared, chain, waits = simt_step(row, resident, steps, ints)
    else:
        fma, issue, shared, chain, waits = tensor_step(row, ints, floats)
    fma *= floats[COEFFICIENT + ARITHMETIC]
    issue *= floats[COEFFICIENT + ISSUE]
    shared *= floats[COEFFICIENT + STAGING]
    traffic, unique, in_flight, arriving = traffic_of(row, blocks, resident, in_shared, steps, ints)
    traffic += floats[EPILOGUE_BYTES]
    unique = max(unique + floats[EPILOGUE_BYTES], floats[BYTES])
    latency = (floats[DRAM_LATENCY] if unique > 0.5 * ints[L2_BYTES] else floats[L2_LATENCY]) * clock
    busy = max(fma, max(issue, shared))
    burst = min(blocks, units * resident) / floats[L2_BW] * clock
    alone, fill, drain = _block(row, max(chain, busy), latency, waits, arriving * burst, ints, floats)
    drain += tile_bytes_out(row, ints) * burst
    ramp = ends * drain if row[PERSISTENT] > 0 else fill + drain  # the next tile's loads overlap the last tile's end
    cycles, ideal, uneven = _waves(blocks, units, resident, steps, busy, alone, ramp)
    cycles += fill + drain
    flying = min(blocks, units * resident) * in_flight
    cache = traffic / min(floats[L2_BW], max(flying / floats[L2_LATENCY], 1.0)) * floats[COEFFICIENT + CACHE_TERM]
    moved = share_of_dram(unique, ints) * unique
    dram = moved / min(floats[DRAM_BW], max(flying / floats[DRAM_LATENCY], 1.0)) * floats[COEFFICIENT + DRAM]
    launch = floats[LAUNCH] * floats[COEFFICIENT + LAUNCH_TERM]
    launch += adding + layout_kernel(row, ints, floats)
    terms[ARITHMETIC] = blocks * fma * steps / units / clock
    terms[ISSUE] = blocks * issue * steps / units / clock
    terms[STAGING] = blocks * shared * steps / units / clock
    terms[TAIL] = uneven / clock
    terms[EXPOSED] = max(0.0, max(0.0, cycles / clock - ideal / clock) - uneven / clock)
    terms[CACHE_TERM], terms[DRAM], terms[LAUNCH_TERM] = cache, dram, launch
    inside, outside = cycles / clock, max(max(dram, cache), begun_blocks(row, blocks, units * resident) * DISPATCH / clock)
    return max(inside, outside) + OVERLAP / power_value(row[STAGES]) * min(inside, outside) + launch


@lean
def _shared_out(row, places, ints, floats):  # noqa: ANN001, ANN202
    """Return (number of blocks, steps per block, tiles that a block finishes, seconds to add up the parts of a reduction).

    `places` is the number of blocks that the device runs at once.
    """
    blocks, steps = grid_blocks(row, ints), math.ceil(reduce_steps(row, 1, ints) / power_value(row[SPLIT_K]))
    if not shares_steps(row, blocks, steps, places):
        return blocks, steps, 1, second_kernel(row, ints, floats)
    shares = sharing(row, blocks, steps, places)
    return shares, math.ceil(blocks * steps / shares), math.ceil(blocks / shares), addition(row, blocks, shares, ints, floats)


@lean
def begun_blocks(row, blocks, places):  # noqa: ANN001, ANN201
    """Return how many of `blocks` are launched: all, or for a persistent kernel at most `places`, those that run at once."""
    return min(blocks, places) if row[PERSISTENT] > 0 else blocks


@lean
def share_of_dram(unique, ints):  # noqa: ANN001, ANN201
    """Return the share of `unique` bytes that L2 does not keep from one run to the next.

    It is 0 up to a quarter of the size of L2, and 1 from three quarters on.
    """
    return min(1.0, max(0.0, 2.0 * unique / ints[L2_BYTES] - 0.5))


@lean
def tile_bytes_out(row, ints):  # noqa: ANN001, ANN201
    """Return the bytes of the output tile that a block stores."""
    return spatial_product(row, 1, ints) * ints[ITEM + ints[NUM_READS]] * 1.0


@lean
def _block(row, work, latency, waits, arrival, ints, floats):  # noqa: ANN001, ANN201
    """Return the cycles of a block by itself as (one reduction step, its first loads, its last stores).

    The work of a step takes `work` cycles. The first step's tiles arrive at all blocks of a wave at once, which takes `arrival`
    cycles. Loads take the latency of memory; with more stages they are issued that many steps earlier. Fragments that are not
    prefetched wait for shared memory at every step.
    """
    clock = floats[CLOCK]
    near = floats[SHARED_LATENCY] * clock
    wait = (latency + 3 * near) * floats[COEFFICIENT + EXPOSED]
    step = work + waits * latency
    if row[TENSOR_CORE] > 0 or is_anything_staged(ints):
        ahead = min(wait, floats[L2_LATENCY] * clock + 3 * near) if waits > 0.0 else wait
        step += max(0.0, ahead - row[STAGES] * work)
    if row[STAGES] > 0 and row[TENSOR_CORE] < 2:
        step += BARRIER
    if row[REGISTER_BUFFER] == 0 and row[STAGES] > 0 and row[TENSOR_CORE] < 2:
        step += near
    held = spatial_product(row, 0, ints) >> (0 if row[TENSOR_CORE] == 0 else 5 if row[TENSOR_CORE] == 1 else 7)
    return step, wait + arrival, 40.0 + 8.0 * held


@lean
def second_kernel(row, ints, floats):  # noqa: ANN001, ANN201
    """Return the seconds of the kernel that adds up the parts of a split reduction; 0 without a split."""
    if row[SPLIT_K] == 0:
        return 0.0
    out = ints[NUM_READS]  # partial sums have 4 bytes for every output type
    partial = 2.0 * tensor_bytes(out, ints) / ints[ITEM + out] * 4.0 * power_value(row[SPLIT_K])
    return floats[LAUNCH] + partial / (floats[DRAM_BW] if partial > ints[L2_BYTES] else floats[L2_BW])


@lean
def layout_kernel(row, ints, floats):  # noqa: ANN001, ANN201
    """Return the seconds of the kernel that rearranges operands for a wgmma kernel; 0 if none runs.

    The kernel lays out operands of a convolution, or transposes B.
    """
    if row[TENSOR_CORE] < 2 or ints[MOVED] == 0:
        return 0.0
    moved = 0.0
    for t in range(ints[NUM_READS]):
        if ints[MOVED] >> t & 1:
            moved += laid_out_bytes(t, ints)
    return floats[LAUNCH] + moved / (floats[DRAM_BW] if moved > ints[L2_BYTES] else floats[L2_BW])


@lean
def laid_out_bytes(tensor, ints):  # noqa: ANN001, ANN201
    """Return the bytes moved by rearranging an operand for wgmma, which is read and written as a whole.

    With a window of one element and no padding, only elements that the window meets are written, and only rows with such elements
    are read.
    """
    whole = 2.0 * tensor_bytes(tensor, ints)
    if ints[FOLDED] > 0 and tensor == ints[MATRIX_B]:
        return 0.5 * whole + folded_bytes(ints)
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        if axis != ints[MATRIX_K] and ints[EXTENT + axis] > 1:
            return whole
    if ints[PADDED + tensor] == 1:
        return whole
    met = ints[ITEM + tensor] * 1.0
    for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
        if ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            met *= ints[EXTENT + axis]
    inner = ints[NUM_DIMS + tensor] - 1
    at, run = PAIRS + (tensor * MAX_DIMS + inner) * PAIR_WIDTH, 1
    for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
        run *= ints[EXTENT + ints[pair]]
    return met + met / run * ints[VIEW + tensor * MAX_DIMS + inner]


@lean
def _waves(blocks, units, resident, steps, busy, alone, ramp):  # noqa: ANN001, ANN201
    """Return three counts of cycles for all blocks: if run in waves, if spread evenly, and lost to an uneven last wave.

    A reduction step takes `busy` cycles next to other blocks and `alone` cycles by itself. A block by itself also pays `ramp`
    cycles at both ends, which other blocks hide.
    """
    full = blocks // (units * resident)
    rest = blocks - full * units * resident
    last = (rest + units - 1) // units
    wave = max(resident * busy * steps, alone * steps + ramp)
    tail = max(last * busy * steps, alone * steps + ramp) if last > 0 else 0.0
    ideal = blocks * busy * steps / units
    cycles = full * wave + tail
    return cycles, ideal, max(0.0, busy * steps * (full * resident + last) - ideal)
