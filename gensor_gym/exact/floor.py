"""Lower bound, by the analytic model, on the time of all completions of a partial program on a GPU's CUDA cores. Compiled.

In a partial program the register tile and the block tile of all spatial axes are chosen, and perhaps the block tile of the
reduction. The reduction's other tiles and the virtual threads are free. Every quantity of `cost/gpu/` is replaced by a lower
bound (resident blocks and bytes in flight by an upper bound), and the model is monotone in each of these; `docs/exact.md` has the
main inequalities. In `row` virtual threads are 1, and if the reduction's block tile is free, the reduction's tiles are 1 too.
"""

from __future__ import annotations

import math

from gensor_gym.cost.gpu.direct import SECTOR, UNDER_WAY, is_anything_staged
from gensor_gym.cost.gpu.gpu import BARRIER, DISPATCH, OVERLAP, blocks_per_unit, second_kernel, share_of_dram, tile_bytes_out
from gensor_gym.cost.gpu.lanes import contiguous_run, lanes_along, word_run
from gensor_gym.cost.gpu.simt import (
    COPY,
    FMA_LATENCY,
    GATHER,
    LOOP,
    SCHEDULERS,
    STEP,
    copies,
    is_window,
    row_lines,
    stalls,
    waits_of,
)
from gensor_gym.cost.gpu.traffic import block_bytes, flying_bytes, grid_blocks, issued_bytes, wave_bytes
from gensor_gym.cost.terms import ARITHMETIC, CACHE_TERM, DRAM, EXPOSED, ISSUE, LAUNCH_TERM, STAGING
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.vector import widest_copy
from gensor_gym.graph.resources import registers_of, shared_bytes_of, staged_elements, threads_of
from gensor_gym.graph.tables.geometry import (
    box_length,
    footprint,
    fragment,
    matrix_elements,
    power_value,
    reduce_product,
    reduce_steps,
    spatial_product,
    tensor_bytes,
)
from gensor_gym.graph.tables.layout import (
    CONVOLUTION,
    MAX_AXES,
    MAX_DIMS,
    REDUCE_THREADS,
    REGISTER_BUFFER,
    SHARED_LAYOUT,
    SPATIAL_SLOTS,
    SPLIT_K,
    STAGES,
    TILE,
    UNROLL,
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
    ITEM,
    L2_BW,
    L2_BYTES,
    L2_LATENCY,
    LANES,
    LAUNCH,
    NUM_DIMS,
    NUM_READS,
    PADDED,
    PAIR_WIDTH,
    PAIRS,
    REGS_UNIT,
    SHARED_BLOCK,
    SHARED_GRAIN,
    SHARED_INNER,
    SHARED_LATENCY,
    SHARED_RESERVED,
    SHARED_UNIT,
    STAGED,
    STRIDE,
    THREADS_UNIT,
    UNITS,
    WINDOW,
)

UNBOUNDED = 1e30


@lean
def reduction_points(ints):  # noqa: ANN001, ANN201
    """Return the number of points (combinations of reduction indices) of the whole reduction."""
    points = 1.0
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        points *= ints[EXTENT + axis]
    return points


@lean
def launches(row, ints, floats):  # noqa: ANN001, ANN201
    """Return the seconds to launch the kernel, and the second kernel that adds up the parts of a split reduction.

    The free choices of a partial program do not affect these seconds, so the model's term is the lower bound.
    """
    return floats[LAUNCH] * floats[COEFFICIENT + LAUNCH_TERM] + second_kernel(row, ints, floats)


@lean
def least_box(row, tensor, matrix, ints):  # noqa: ANN001, ANN201
    """Return the smallest number of elements that a block loads of an operand in all steps together, for any block tile.

    A reduce axis of extent E and tile t that indexes a dimension of reach L with stride c loads (L + c (t - 1)) ceil(E / t)
    elements along it. That is smallest at t = 1 or at t = E. If `matrix`, the operand is a matrix, and the reduction's tiles
    multiply.
    """
    if matrix:
        size = matrix_elements(row, tensor, 1, ints) * 1.0
        for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
            if ints[STRIDE + tensor * MAX_AXES + axis] != 0:
                size *= ints[EXTENT + axis]
        return size
    size = 1.0
    for d in range(ints[NUM_DIMS + tensor]):
        reach = box_length(row, tensor, d, 1, ints) * 1.0
        at = PAIRS + (tensor * MAX_DIMS + d) * PAIR_WIDTH
        for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
            if ints[pair] >= SPATIAL_SLOTS:
                extent = ints[EXTENT + ints[pair]]
                reach = min(reach + ints[pair + 1] * (extent - 1.0), reach * extent)
        size *= reach
    return size


@lean
def least_sectors(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return a lower bound of `warp_sectors` of the output, for any virtual threads.

    It is the bytes of an element, or more if each row has only one lane of a warp.
    """
    item = ints[ITEM + tensor] * 1.0
    axis = SPATIAL_SLOTS - 1
    if row[REDUCE_THREADS] > 0 or ints[STRIDE + tensor * MAX_AXES + axis] == 0 or lanes_along(row, axis, ints) > 1:
        return item
    run = max(1, contiguous_run(row, tensor, ints))
    return max(item, SECTOR / min(8.0, run * 1.0 if run > 1 else 2.0))


@lean
def least_wavefronts(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return a lower bound of `shared_wavefronts` for any virtual threads."""
    part, distinct = fragment(row, tensor, ints), 1
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            distinct *= lanes_along(row, axis, ints)
    loads = math.ceil(part / word_run(row, tensor, ints)) * 1.0
    return max(loads, part * max(distinct / 32.0, min(0.5, distinct / 8.0)))


@lean
def least_share(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return a lower bound of `window_share` for any virtual threads and unrolling.

    Along a dimension of several axes a thread loads one element or more for each unrolled point.
    """
    if ints[WINDOW + tensor] == 0:
        return 1.0
    share = 1.0
    for d in range(ints[NUM_DIMS + tensor]):
        at = PAIRS + (tensor * MAX_DIMS + d) * PAIR_WIDTH
        for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
            if ints[at] > 1 and ints[pair] < SPATIAL_SLOTS:
                share /= row[TILE + ints[pair]]
    return share


@lean
def least_copies(row, tensor, threads, ints):  # noqa: ANN001, ANN201
    """Return lower bounds of the cost of copying an operand to shared memory in all steps, for any block tile.

    They are (instructions of a thread, wavefronts of a block, waits for memory).
    """
    matrix = row[CONVOLUTION] == 3
    count = least_box(row, tensor, matrix, ints) / power_value(row[SPLIT_K])
    waves = count * ints[ITEM + tensor] / 128.0
    if matrix and is_window(tensor, ints):
        return max(GATHER, count / threads * GATHER), waves, waits_of(row, tensor, count / threads, ints)
    width = widest_copy(row, tensor, ints)
    across = ints[SHARED_INNER + tensor] != ints[NUM_DIMS + tensor] - 1
    alone = COPY + 4.0 * ints[PADDED + tensor]
    each = alone + (width if across else 1)
    trips = count / (threads * width)
    return max(alone + 1 if ints[WINDOW + tensor] == 1 else each, trips * each), waves, waits_of(row, tensor, trips, ints)


@lean
def least_traffic(row, fixed, tensor, steps, tiles, ints):  # noqa: ANN001, ANN201
    """Return three bounds on the bytes of an operand that blocks copy.

    They are a lower bound of the bytes that a block copies in one step, a lower bound of the bytes that all blocks copy from L2,
    and an upper bound of the bytes that a block has in flight at a time.
    """
    staged, parts = ints[STAGED + tensor] == 1, power_value(row[SPLIT_K])
    small = footprint(row, tensor, 1, ints) * ints[ITEM + tensor] * 1.0
    if not staged:
        flying = threads_of(row, ints) * UNDER_WAY * 4.0
        if fixed == 1:
            return small, small * steps * tiles * parts, flying
        return small, least_box(row, tensor, False, ints) * ints[ITEM + tensor] * tiles, flying
    if fixed == 1:  # L1 keeps all that it could, or nothing
        per_step, most = block_bytes(row, tensor, UNBOUNDED, ints), block_bytes(row, tensor, 0.0, ints)
        return per_step, per_step * steps * tiles * parts, flying_bytes(row, tensor, most, ints)
    asked = least_box(row, tensor, False, ints) * ints[ITEM + tensor] * tiles
    if row[STAGES] > 0:
        return small, asked, UNBOUNDED
    return small, asked, issued_bytes(row, tensor, widest_copy(row, tensor, ints), ints)


@lean
def most_resident(row, fixed, threads, ints):  # noqa: ANN001, ANN201
    """Return an upper bound of the blocks resident on a multiprocessor; -1 if a block exceeds the limit of shared memory."""
    shared = 0
    if fixed == 1:
        shared = shared_bytes_of(row, ints)
    else:
        for t in range(ints[NUM_READS]):
            if ints[STAGED + t] == 1:
                shared += staged_elements(row, t, ints) * ints[ITEM + t]
        shared *= row[STAGES] + 1
    if shared > ints[SHARED_BLOCK]:
        return -1
    return blocks_per_unit(
        threads, registers_of(row, ints), shared, ints[THREADS_UNIT], ints[BLOCKS_UNIT], ints[REGS_UNIT],
        ints[SHARED_UNIT], ints[SHARED_GRAIN], ints[SHARED_RESERVED],
    )  # fmt: skip


@lean
def least_stored(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return a lower bound of a block's wavefronts to store a staged tile in shared memory.

    No bank conflicts are counted, because padding depends on virtual threads.
    """
    waves = staged_elements(row, tensor, ints) * ints[ITEM + tensor] / 128.0
    return waves if row[CONVOLUTION] == 3 and is_window(tensor, ints) else waves + row_lines(row, tensor, ints)


@lean
def least_work(row, fixed, inner, resident, threads, steps, ints, floats):  # noqa: ANN001, ANN201
    """Return lower bounds for a block in all reduction steps: (cycles of the busiest pipe, cycles of a lone block, waits).

    The waits for memory are successive. `inner` is the largest product of the reduction's register tiles; it is used only if the
    block tile is fixed.
    """
    warps, tile = (threads + 31) // 32, spatial_product(row, 0, ints)
    parts = power_value(row[REDUCE_THREADS])
    each = math.ceil(reduce_product(row, 1, ints) / parts) * 1.0
    points = each * steps if fixed == 1 else max(1.0, reduction_points(ints) / parts / power_value(row[SPLIT_K]))
    others, waves, waits = STEP * steps, 0.0, 0.0
    for t in range(ints[NUM_READS]):
        part = fragment(row, t, ints)
        loads = math.ceil(part / word_run(row, t, ints)) * 1.0
        if ints[STAGED + t] == 1:
            if fixed == 1:
                instructions, stored, copied = copies(row, t, threads, ints)
                instructions, stored, copied = instructions * steps, least_stored(row, t, ints) * steps, copied * steps
            else:
                instructions, stored, copied = least_copies(row, t, threads, ints)
            others, waits = others + instructions, waits + copied
            share = least_share(row, t, ints)
            waves += least_wavefronts(row, t, ints) * points * share * warps + stored
            loads *= share * (1.25 if row[SHARED_LAYOUT] == 2 else 1.0)
        elif ints[PADDED + t] == 1:
            loads *= 3.0
        others += points * (loads + (part if ints[ITEM + t] == 2 else 0))
    if fixed == 1:
        turns = math.ceil(each / (inner * power_value(row[UNROLL])))
        others += LOOP * turns * steps if turns > 1 else 0.0
    fma = tile * points * warps * 32.0 / ints[LANES]
    issue = (tile * points + others) * warps / SCHEDULERS * stalls(warps * resident, row[REGISTER_BUFFER])
    chain = max(fma, issue) / max(min(1.0, warps / SCHEDULERS * tile / FMA_LATENCY), 1e-3)
    fma, issue = fma * floats[COEFFICIENT + ARITHMETIC], issue * floats[COEFFICIENT + ISSUE]
    busy = max(fma, max(issue, waves * floats[COEFFICIENT + STAGING]))
    return busy, max(chain, busy), waits


@lean
def least_cycles(row, busy, work, wait, near, blocks, resident, steps, arriving, ints, floats):  # noqa: ANN001, ANN201
    """Return a lower bound of the cycles in which all blocks run.

    It is the larger of the fullest multiprocessor's work and of all waves of blocks alone, plus the first loads and the last
    stores. The model's waves of `resident` blocks would be no bound, because a completion may have fewer resident blocks and
    still end sooner. For example, four blocks on a multiprocessor each need 1 cycle of the busiest pipe, and 2.5 cycles alone.
    They end after 5 cycles in waves of two and two, but after 5.5 in waves of three and one.
    """
    units = ints[UNITS]
    stages = row[STAGES]
    ahead = min(wait, floats[L2_LATENCY] * floats[CLOCK] + 3 * near) if is_anything_staged(ints) else 0.0
    alone = work + ahead * steps if stages == 0 else max(work, ahead * steps / stages)
    if stages > 0:
        alone += (BARRIER + (near if row[REGISTER_BUFFER] == 0 else 0.0)) * steps
    begin = wait + 40.0 + 8.0 * spatial_product(row, 0, ints)
    moved = (arriving + tile_bytes_out(row, ints)) / floats[L2_BW] * floats[CLOCK]
    ramp = begin + min(blocks, units) * moved
    return max(math.ceil(blocks / units) * busy, math.ceil(blocks / (units * resident)) * (alone + ramp)) + ramp


@lean
def least_outside(row, fixed, blocks, resident, steps, ints, floats):  # noqa: ANN001, ANN201
    """Return lower bounds of memory traffic: (seconds of L2, seconds of DRAM, bytes from DRAM, bytes of a block's step)."""
    traffic, unique, flying, arriving = floats[EPILOGUE_BYTES], 0.0, 0.0, 0.0
    units, tiles = ints[UNITS], blocks / power_value(row[SPLIT_K])
    waves = math.ceil(blocks / (units * resident))
    for t in range(ints[NUM_READS]):
        per_step, asked, under_way = least_traffic(row, fixed, t, steps, tiles, ints)
        arriving += per_step
        traffic += asked
        flying += under_way
        size = tensor_bytes(t, ints)
        if size <= 0.6 * ints[L2_BYTES]:
            unique += min(size, asked)
        elif fixed == 1:
            unique += min(max(size if waves == 1 else 0.0, waves * wave_bytes(row, t, units * resident, ints)), asked)
    out = ints[NUM_READS]
    stretch = least_sectors(row, out, ints) / ints[ITEM + out]
    traffic += tensor_bytes(out, ints) * stretch
    unique += tensor_bytes(out, ints) * min(stretch, 2.0)
    unique = max(unique + floats[EPILOGUE_BYTES], floats[BYTES])
    flying = min(blocks, units * resident) * max(flying, 32.0)
    cache = traffic / min(floats[L2_BW], max(flying / floats[L2_LATENCY], 1.0)) * floats[COEFFICIENT + CACHE_TERM]
    moved = share_of_dram(unique, ints) * unique
    dram = moved / min(floats[DRAM_BW], max(flying / floats[DRAM_LATENCY], 1.0)) * floats[COEFFICIENT + DRAM]
    return cache, dram, unique, arriving


@lean
def floor_seconds(row, fixed, inner, ints, floats):  # noqa: ANN001, ANN201
    """Return a lower bound on the seconds of every completion of a partial program; infinite if none is legal.

    `fixed` is 1 if the reduction's block tile is chosen; `inner` is then the largest product of its register tiles.
    """
    threads = threads_of(row, ints)
    resident = most_resident(row, fixed, threads, ints)
    if resident <= 0:
        return math.inf
    blocks = grid_blocks(row, ints)
    steps = math.ceil(reduce_steps(row, 1, ints) / power_value(row[SPLIT_K])) * 1.0 if fixed == 1 else 1.0
    busy, work, waits = least_work(row, fixed, inner, resident, threads, steps, ints, floats)
    cache, dram, unique, arriving = least_outside(row, fixed, blocks, resident, steps, ints, floats)
    far = floats[DRAM_LATENCY] if unique > 0.5 * ints[L2_BYTES] else min(floats[L2_LATENCY], floats[DRAM_LATENCY])
    near = floats[SHARED_LATENCY] * floats[CLOCK]
    wait = (far * floats[CLOCK] + 3 * near) * floats[COEFFICIENT + EXPOSED]
    work += waits * far * floats[CLOCK]
    cycles = least_cycles(row, busy, work, wait, near, blocks, resident, steps, arriving, ints, floats)
    inside, outside = cycles / floats[CLOCK], max(max(dram, cache), blocks * DISPATCH / floats[CLOCK])
    share = OVERLAP / power_value(row[STAGES])
    return max(inside, outside) + share * min(inside, outside) + launches(row, ints, floats)


@lean
def most_padding(row, best, ints, floats):  # noqa: ANN001, ANN201
    """Return the largest number of output elements, padding included, of a program that takes at most `best` seconds.

    The bound holds for all programs with the register tile of `row`. The block tile is unknown, so pipes run at full rate, and as
    many warps are resident as the registers allow.
    """
    tile = spatial_product(row, 0, ints)
    others = 0.0
    for t in range(ints[NUM_READS]):
        part = fragment(row, t, ints)
        loads = math.ceil(part / word_run(row, t, ints)) * 1.0
        if ints[STAGED + t] == 1:
            loads *= least_share(row, t, ints)
        elif ints[PADDED + t] == 1:
            loads *= 3.0
        others += loads + (part if ints[ITEM + t] == 2 else 0)
    per_warp = (32 * registers_of(row, ints) + 255) // 256 * 256
    warps = min(ints[THREADS_UNIT] // 32, 4 * (ints[REGS_UNIT] // 4 // per_warp))
    issue = (tile + others) / tile / (32.0 * SCHEDULERS) * stalls(warps, row[REGISTER_BUFFER])
    rate = max(1.0 / ints[LANES] * floats[COEFFICIENT + ARITHMETIC], issue * floats[COEFFICIENT + ISSUE])
    rate *= reduction_points(ints) / ints[UNITS] / floats[CLOCK]
    left = best - launches(row, ints, floats)
    outside = share_of_dram(floats[BYTES], ints) * floats[BYTES] / floats[DRAM_BW] * floats[COEFFICIENT + DRAM]
    share = OVERLAP / power_value(row[STAGES])
    inside = left - share * outside
    if inside < outside:
        inside = (left - outside) / share
    return inside / rate
