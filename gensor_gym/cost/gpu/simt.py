"""Cost of one reduction step of a block on CUDA cores. Compiled.

Instructions are counted as in the machine code of SGEMM kernels (NVRTC 13.0, sm_90). On multiprocessors of 128 lanes one FFMA
takes a whole issue slot, so the share of FFMAs in the loop bounds the rate. Their share is 79 percent with 64x64x16 tiles of 4x4,
88 with 128x128x8 of 8x8 (80 if unrolled by 4), 91.5 with 256x128x8 of 16x8.
"""

from __future__ import annotations

import math

from gensor_gym.cost.gpu.direct import direct_loads, store_lines
from gensor_gym.cost.gpu.lanes import shared_wavefronts, store_conflicts, word_run
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.vector import copy_width
from gensor_gym.graph.resources import staged_elements, threads_of
from gensor_gym.graph.tables.geometry import box_length, fragment, power_value, reduce_product, spatial_product
from gensor_gym.graph.tables.layout import (
    CONVOLUTION,
    MAX_AXES,
    MAX_DIMS,
    REDUCE_THREADS,
    REGISTER_BUFFER,
    SHARED_LAYOUT,
    SPATIAL_SLOTS,
    STAGES,
    TILE,
    UNROLL,
)
from gensor_gym.graph.tables.tables import (
    ASYNC,
    ITEM,
    LANES,
    NUM_DIMS,
    NUM_READS,
    PADDED,
    PAIR_WIDTH,
    PAIRS,
    SHARED_INNER,
    STAGED,
    STRIDE,
    VIEW,
    WINDOW,
)

SCHEDULERS = 4
FMA_LATENCY = 4.0
"""Cycles from one FFMA to the next that depends on it, on Volta and newer GPUs."""
LOOP = 30.0
"""Number of instructions of an iteration of the loop over reduction points, besides its arithmetic and loads, if it is not fully
unrolled: addresses, moves, branch."""
STEP = 20.0
"""Number of instructions of a step besides its arithmetic, loads and copies: barriers, pointers, branch."""
COPY = 5.0
"""Number of instructions of a copy to shared memory besides its stores: load, address, guard."""
MASK_BITS = 32
"""Largest number of copies of a thread whose bounds fit in the bits of one register (`codegen.cuda.simt.copies`)."""
UNMASKED = 30.0
"""Number of additional instructions of a guarded copy if a thread makes more than `MASK_BITS` copies: its index is decomposed and
compared at every step."""
GUARDED_WAIT = 0.5
"""Time of a guarded copy through registers, in waits for memory. The copy is loaded under a branch, so the next load is issued
after it has arrived, but half of the loads hit L1. Chosen on the recorded poolings and convolutions (train)."""
GATHER = 4.0
"""Number of instructions for one element of an implicit matrix product: offset from a table, address, guard, copy."""
STALL = 0.39
"""Issue slots that a scheduler loses, as a multiple of the slots of one warp. On an RTX 4070 Ti S, 2 warps per scheduler kept 84
percent of the slots busy (3.35 of 4 instructions a clock, ncu in gau-nernst/learn-cuda 02a), which is 2 / (2 + STALL)."""


@lean
def stalls(warps, register_buffer):  # noqa: ANN001, ANN201
    """Return the factor by which stalls lengthen the issue of instructions, with `warps` warps on a multiprocessor.

    It is all issue slots divided by the used ones. Without prefetched fragments the loss is 1.5 times as large (our assumption;
    published kernels gain 4 to 6 points by them).
    """
    each = max(1.0, warps / SCHEDULERS)
    return (each + STALL * (1.0 if register_buffer > 0 else 1.5)) / each


@lean
def is_window(tensor, ints):  # noqa: ANN001, ANN201
    """Whether an operand of a convolution is its image: only the image is indexed by the innermost spatial axis."""
    return ints[STRIDE + tensor * MAX_AXES + SPATIAL_SLOTS - 1] != 0


@lean
def copies(row, tensor, threads, ints):  # noqa: ANN001, ANN201
    """Return the cost of copying a tile to shared memory in one reduction step, on CUDA cores.

    The result is (instructions per thread, wavefronts per block, successive waits for memory). Rows that are transposed relative
    to the tensor (A of a product) are stored element by element. Neighbouring lanes copy neighbouring elements of the tensor, and
    so store to one bank, unless rows are padded or swizzled.
    """
    count = staged_elements(row, tensor, ints)
    item = ints[ITEM + tensor]
    if row[CONVOLUTION] == 3 and is_window(tensor, ints):
        trips = math.ceil(count / threads)
        return trips * GATHER, count * item / 128.0, waits_of(row, tensor, trips, ints)
    width = copy_width(row, tensor, ints)
    across = ints[SHARED_INNER + tensor] != ints[NUM_DIMS + tensor] - 1
    stores = width if across else 1
    each = COPY + stores + 4.0 * ints[PADDED + tensor]
    together = 1 if row[STAGES] > 0 and ints[ASYNC] == 1 else width  # copies of the hardware are then single elements
    conflict = store_conflicts(row, tensor, together, ints) if across else 1.0
    trips = math.ceil(count / (threads * width))
    if ints[PADDED + tensor] == 1 and trips > MASK_BITS:
        each += UNMASKED
    waves = count * item / 128.0 * conflict + row_lines(row, tensor, ints)
    return trips * each, waves, waits_of(row, tensor, trips, ints)


@lean
def row_lines(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return how many look-ups in L1 it takes to load the box of a tensor: one for each line of its rows.

    Rows shorter than a line share lines.
    """
    last, item = ints[NUM_DIMS + tensor] - 1, ints[ITEM + tensor]
    rows = 1
    for d in range(last):
        rows *= box_length(row, tensor, d, 1, ints)
    near = min(1.0, ints[VIEW + tensor * MAX_DIMS + last] * item / 128.0)
    return rows * near * math.ceil(box_length(row, tensor, last, 1, ints) * item / 128.0)


@lean
def waits_of(row, tensor, trips, ints):  # noqa: ANN001, ANN201
    """Return how many memory latencies a thread waits while it copies a tile through registers.

    A load waits for half a latency (`GUARDED_WAIT`) if it is under a branch, because the tensor is padded, else for an eighth.
    The result is 0 if there are several stages, which hide the waits.
    """
    if row[STAGES] > 0:
        return 0.0
    return trips * (GUARDED_WAIT if ints[PADDED + tensor] == 1 else 0.125)


@lean
def window_share(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return how many elements of a window a thread loads from shared memory, divided by the elements that it uses.

    Neighbouring points of the unrolled loop share elements. Knob `unroll` applies to the innermost loops first.
    """
    if ints[WINDOW + tensor] == 0 or row[REDUCE_THREADS] > 0:
        return 1.0
    inner, left = unrolled_along(row, SPATIAL_SLOTS + 2, power_value(row[UNROLL]))
    middle, left = unrolled_along(row, SPATIAL_SLOTS + 1, left)
    outer, _ = unrolled_along(row, SPATIAL_SLOTS, left)
    loaded, used = 1.0, fragment(row, tensor, ints) * 1.0
    for d in range(ints[NUM_DIMS + tensor]):
        reach, at = 1, PAIRS + (tensor * MAX_DIMS + d) * PAIR_WIDTH
        for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
            axis = ints[pair]
            size = row[TILE + axis]
            if axis >= SPATIAL_SLOTS:
                size = outer if axis == SPATIAL_SLOTS else middle if axis == SPATIAL_SLOTS + 1 else inner
                used *= size
            reach += ints[pair + 1] * (size - 1)
        loaded *= reach
    return min(1.0, loaded / used)


@lean
def unrolled_along(row, axis, budget):  # noqa: ANN001, ANN201
    """Return (unrolled points along a reduce axis, unrolling that remains for outer axes).

    `budget` is the unrolling that inner axes leave.
    """
    inner, outer = row[TILE + axis], row[TILE + MAX_AXES + axis]
    if budget == 1 or inner == outer:
        return inner, budget
    chunks = outer // inner
    return inner * min(budget, chunks), max(1, budget // chunks)


@lean
def simt_step(row, resident, steps, ints):  # noqa: ANN001, ANN201
    """Return the cost of a block's step on CUDA cores: (FMA pipes, issue slots, wavefronts, arithmetic alone, waits).

    The first four are cycles; arithmetic alone is that of a block without others next to it. The waits are counted in
    latencies of memory.
    """
    threads = threads_of(row, ints)
    warps = (threads + 31) // 32
    points = math.ceil(reduce_product(row, 1, ints) / power_value(row[REDUCE_THREADS]))
    tile = spatial_product(row, 0, ints)
    maths = tile * points * 1.0
    others, waves, waits = STEP, store_lines(row, ints) * warps / steps, 0.0
    for t in range(ints[NUM_READS]):
        part, staged = fragment(row, t, ints), ints[STAGED + t] == 1
        loads = math.ceil(part / word_run(row, t, ints)) * 1.0
        if staged:
            share = window_share(row, t, ints)
            instructions, stored, copied = copies(row, t, threads, ints)
            others, waits = others + instructions, waits + copied
            waves += shared_wavefronts(row, t, ints) * points * share * warps + stored
            loads *= share * (1.25 if row[SHARED_LAYOUT] == 2 else 1.0)
        else:
            lines, batches = direct_loads(row, t, ints)
            waves, waits = waves + lines * warps, waits + batches
            if ints[PADDED + t] == 1:
                loads *= 3.0
        others += points * (loads + (part if ints[ITEM + t] == 2 else 0))
    turns = math.ceil(points / (reduce_product(row, 0, ints) * power_value(row[UNROLL])))
    others += LOOP * turns if turns > 1 else 0.0
    fma = maths * warps * 32.0 / ints[LANES]
    issue = (maths + others) * warps / SCHEDULERS * stalls(warps * resident, row[REGISTER_BUFFER])
    independent = min(1.0, warps / SCHEDULERS * tile / FMA_LATENCY)
    return fma, issue, waves, max(fma, issue) / max(independent, 1e-3), waits
