"""What a program takes of the hardware, and whether that is within its limits. Compiled, for one row.

GPU: threads, registers, shared memory, code size. CPU: vector registers, cache footprints, code size.
"""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs import KNOB_INDEX, KNOBS
from gensor_gym.graph.layout import KNOB, MAX_AXES, MAX_DIMS, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables import (
    COPIED,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    ITEM,
    L2_BYTES,
    L3_BYTES,
    LANES,
    NUM_DIMS,
    NUM_READS,
    PAIR_WIDTH,
    PAIRS,
    REGS_THREAD,
    REGS_UNIT,
    SHARED_BLOCK,
    SHARED_INNER,
    STAGED,
    STRIDE,
    THREADS_BLOCK,
    UNITS,
    VECTOR_REGS,
    VECTOR_SLOT,
    WARP,
)

SPLIT_K, REDUCE_THREADS, VECTOR, UNROLL = (
    KNOB + KNOB_INDEX[n] for n in ("split_k", "reduce_threads", "vector", "unroll")
)
SHARED_LAYOUT, RASTER, CONVOLUTION = (KNOB + KNOB_INDEX[n] for n in ("shared_layout", "raster", "convolution"))
PACK_A, PACK_B, LOOP_ORDER = (KNOB + KNOB_INDEX[n] for n in ("pack_a", "pack_b", "loop_order"))
PREFETCH, THREAD_SPLIT = (KNOB + KNOB_INDEX[n] for n in ("prefetch", "thread_split"))

CODE_LIMIT_GPU = 4096
"""Multiply-adds in the unrolled body of one thread: beyond this NVRTC takes seconds and the instruction cache overflows."""
CODE_LIMIT_CPU = 512
"""Vector multiply-adds in an unrolled micro-kernel: beyond this a C compiler takes seconds."""

REGISTERS, CODE, SHARED, REDUCE_SHARES, L1_TILE, TASK_TILE, PACKING, SPLIT = (1 << i for i in range(8))
EVERY = (1 << 8) - 1
"""Limits, as members of a set. Both kinds of hardware: registers (and threads), code, work for all parts of a split
reduction. GPU: shared memory, work for all reduction threads. CPU: L1 tile, task tile, packing for vectors of channels.
"""


@lean
def power_value(index):  # noqa: ANN001, ANN201
    """Value of the knobs whose values are 1, 2, 4, .. at an index (checked against the table by a test)."""
    return 1 << index


@lean
def footprint(row, tensor, level, ints):  # noqa: ANN001, ANN201
    """Elements of a tensor that the tile of a level touches, as a dense box."""
    size = 1
    for d in range(ints[NUM_DIMS + tensor]):
        size *= box_length(row, tensor, d, level, ints)
    return size


@lean
def box_length(row, tensor, dimension, level, ints):  # noqa: ANN001, ANN201
    """Length of the box of `footprint` along a dimension of the tensor."""
    reach = 1
    at = PAIRS + (tensor * MAX_DIMS + dimension) * PAIR_WIDTH
    for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
        reach += ints[pair + 1] * (row[TILE + level * MAX_AXES + ints[pair]] - 1)
    return reach


@lean
def box_width(row, tensor, level, ints):  # noqa: ANN001, ANN201
    """Length of the box of `footprint` along the tensor's innermost dimension."""
    return box_length(row, tensor, ints[NUM_DIMS + tensor] - 1, level, ints)


@lean
def spatial_product(row, level, ints):  # noqa: ANN001, ANN201
    """Output elements of the tile of a level."""
    product = 1
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        product *= row[TILE + level * MAX_AXES + axis]
    return product


@lean
def reduce_product(row, level, ints):  # noqa: ANN001, ANN201
    """Reduction points of the tile of a level."""
    product = 1
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        product *= row[TILE + level * MAX_AXES + axis]
    return product


@lean
def reduce_steps(row, level, ints):  # noqa: ANN001, ANN201
    """Steps of the reduction loop over tiles of a level."""
    steps = 1
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        tile = row[TILE + level * MAX_AXES + axis]
        steps *= (ints[EXTENT + axis] + tile - 1) // tile
    return steps


@lean
def fragment(row, tensor, ints):  # noqa: ANN001, ANN201
    """Elements of a read that one thread holds for one reduction point: the register tile over axes it depends on."""
    size = 1
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            size *= row[TILE + axis]
    return size


@lean
def threads_of(row, ints):  # noqa: ANN001, ANN201
    """Threads of a GPU block."""
    inner = spatial_product(row, 0, ints)
    return spatial_product(row, 1, ints) // inner * power_value(row[REDUCE_THREADS])


@lean
def registers_of(row, ints):  # noqa: ANN001, ANN201
    """Registers of a GPU thread: 32 for addresses and counters, accumulators, and each fragment twice (use and prefetch).

    Reconstructed from NVRTC's counts for SGEMM tiles: 4x4 71, 8x4 80, 8x8 121-127, 16x8 219-231.
    """
    total = 32 + spatial_product(row, 0, ints)
    for t in range(ints[NUM_READS]):
        total += 2 * fragment(row, t, ints)
    return total


@lean
def shared_bytes_of(row, ints):  # noqa: ANN001, ANN201
    """Shared memory of a GPU block: staged boxes one after the other, each rounded up to 16 bytes.

    When asked, rows (along `structure.shared_inner`, where a box has several) are padded; 4 elements are counted, the
    code may take fewer. The exchange of a reduction shared by more than a warp takes the place of the boxes.
    """
    total = 0
    for t in range(ints[NUM_READS]):
        if ints[STAGED + t] == 0:
            continue
        box = footprint(row, t, 1, ints)
        rows = box // box_length(row, t, ints[SHARED_INNER + t], 1, ints)
        if row[SHARED_LAYOUT] == 1 and rows > 1:
            box += rows * 4
        total += (box * ints[ITEM + t] + 15) // 16 * 16
    exchange = 0
    if power_value(row[REDUCE_THREADS]) > 32:
        exchange = 4 * (threads_of(row, ints) // 32) * spatial_product(row, 0, ints)
    return max(total, exchange)


@lean
def fits_gpu(row, ints, limits=EVERY):  # noqa: ANN001, ANN201
    """Limits of a block: threads, registers, shared memory, code; and no part of the reduction left without work.

    Only those of the set `limits` are looked at, which is enough where the row is known to keep the others.
    """
    if limits & SPLIT and row[SPLIT_K] > 0 and power_value(row[SPLIT_K]) > reduce_steps(row, 1, ints):
        return False
    if limits & CODE:
        body = spatial_product(row, 0, ints) * reduce_product(row, 0, ints)
        if body * power_value(row[UNROLL]) > CODE_LIMIT_GPU:
            return False
    if limits & REGISTERS:
        threads = threads_of(row, ints)
        registers = registers_of(row, ints)
        if threads > ints[THREADS_BLOCK] or registers > ints[REGS_THREAD]:
            return False
        warps = (threads + ints[WARP] - 1) // ints[WARP]
        if (registers * ints[WARP] + 255) // 256 * 256 * ((warps + 3) // 4 * 4) > ints[REGS_UNIT]:
            return False
    if limits & SHARED and shared_bytes_of(row, ints) > ints[SHARED_BLOCK]:
        return False
    if limits & REDUCE_SHARES == 0 or row[REDUCE_THREADS] == 0:
        return True
    return power_value(row[REDUCE_THREADS]) <= reduce_product(row, 1, ints) // reduce_product(row, 0, ints)


@lean
def vectors_along(row, ints):  # noqa: ANN001, ANN201
    """Vector registers across the register tile's vector axis: full ones, and one per power of two in the rest.

    In a shifted matrix product (convolution=2) that axis is rows and columns together.
    """
    slot = ints[VECTOR_SLOT + row[CONVOLUTION]]
    tile = row[TILE + slot]
    if row[CONVOLUTION] == 2:
        tile *= row[TILE + slot - 1]
    lanes = ints[LANES]
    count = tile // lanes
    rest = tile % lanes
    while rest > 0:
        count += rest & 1
        rest >>= 1
    return count


@lean
def accumulators_of(row, ints):  # noqa: ANN001, ANN201
    """Vector accumulators of a CPU micro-kernel."""
    slot = ints[VECTOR_SLOT + row[CONVOLUTION]]
    rows = 1
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if axis != slot and (row[CONVOLUTION] != 2 or axis != slot - 1):
            rows *= row[TILE + axis]
    return rows * vectors_along(row, ints)


@lean
def tile_bytes(row, level, ints):  # noqa: ANN001, ANN201
    """Bytes of all tensors that the tile of a level touches."""
    total = 0
    for t in range(ints[NUM_READS] + 1):
        total += footprint(row, t, level, ints) * ints[ITEM + t]
    return total


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


assert all(KNOBS[KNOB_INDEX[n]].values == tuple(1 << i for i in range(len(KNOBS[KNOB_INDEX[n]].values)))
           for n in ("split_k", "reduce_threads", "vector", "unroll", "raster", "thread_split"))  # fmt: skip
