"""Resources that a program uses. Compiled functions of one row; `graph/limits.py` compares them with the hardware's limits.

GPU: threads, registers, shared memory, code size. CPU: vector registers, cache footprints, code size.
"""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.vector import copied_length
from gensor_gym.graph.tables.geometry import (
    box_length,
    columns_of,
    computed_product,
    footprint,
    fragment,
    has_window_rows,
    matrix_elements,
    matrix_rows,
    moving_product,
    power_value,
    reduce_product,
    spatial_product,
    workers_of,
)
from gensor_gym.graph.tables.layout import (
    CONVOLUTION,
    MAX_AXES,
    REDUCE_THREADS,
    REGISTER_BUFFER,
    SHARED_LAYOUT,
    SPATIAL_SLOTS,
    STAGES,
    TENSOR_CORE,
    TILE,
    UNROLL,
)
from gensor_gym.graph.tables.tables import (
    COLUMNS_FROM,
    FIRST_SPATIAL,
    IMAGES,
    INSTRUCTION_K,
    ITEM,
    LAID_OUT,
    LANES,
    MATRIX_A,
    MATRIX_B,
    MATRIX_K,
    MATRIX_M,
    MATRIX_N,
    NUM_DIMS,
    NUM_READS,
    PRODUCTS,
    SHARED_INNER,
    STAGED,
    TRANSPOSED,
    VECTOR_SLOT,
    WARP,
)

CODE_LIMIT_GPU = 4096
"""Limit on the multiply-adds in a thread's unrolled body. Beyond it NVRTC takes seconds and the instruction cache overflows."""
CODE_LIMIT_CPU = 512
"""Limit on the vector multiply-adds in an unrolled micro-kernel. Beyond it a C compiler takes seconds."""

WINDOW_POINTS, WINDOW_REGISTERS = 16, 16
"""Number of unrolled points of a window (combinations of reduction indices) from which loads of later points take extra
registers, and the number of these registers."""
MMA_CODE = 8
"""Number of multiply-adds as which one tensor-core instruction, with its share of loads, counts in the size of the code."""


@lean
def threads_of(row, ints):  # noqa: ANN001, ANN201
    """Return the number of threads of a GPU block.

    One thread computes a register tile (with `reduce_threads`, several), with mma.sync a warp, with wgmma a warpgroup of 128
    threads; one more warpgroup copies.
    """
    workers = workers_of(row, ints)
    if row[TENSOR_CORE] == 0:
        return workers * power_value(row[REDUCE_THREADS])
    return workers * 32 if row[TENSOR_CORE] == 1 else (workers + 1) * 128


@lean
def registers_of(row, ints):  # noqa: ANN001, ANN201
    """Estimate the registers of a GPU thread: 32 for addresses and counters, accumulators, and each operand fragment twice.

    Reconstructed from NVRTC's counts for SGEMM tiles: 4x4 71, 8x4 80, 8x8 121-127, 16x8 219-231. Of 80 convolutions with random
    tiles, those with 16 or more unrolled points spilled unless 16 more registers were counted, for loads of later points. On
    tensor cores: 40, the accumulators of the worker's tile divided among its threads and, for mma.sync, fragments of one
    instruction's k (twice with `register_buffer`). NVRTC's counts: warp tile 64x64 196, warpgroup tile 64x256 168.
    """
    tile = spatial_product(row, 0, ints)
    if row[TENSOR_CORE] == 2:
        return 40 + computed_product(row, 0, ints) // 128
    total = 32 + tile if row[TENSOR_CORE] == 0 else 40 + tile // 32
    for t in range(ints[NUM_READS]):
        part = fragment(row, t, ints)
        if row[TENSOR_CORE] == 0:
            total += 2 * part
            if has_window_rows(t, ints) and reduce_product(row, 0, ints) * power_value(row[UNROLL]) >= WINDOW_POINTS:
                total += WINDOW_REGISTERS
        else:  # 4-byte registers over 32 lanes; three times as many if a product is split into several
            held = (part * ints[INSTRUCTION_K] * ints[ITEM + t] + 127) // 128
            total += power_value(row[REGISTER_BUFFER]) * held * (3 if ints[PRODUCTS] > 1 else 1)
    return total


@lean
def staged_elements(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return how many elements of an operand a block holds in shared memory for one step of the reduction.

    The elements are a dense box of the tensor. On tensor cores, and for a convolution as an implicit matrix product
    (convolution = 3), they are a tile of the matrix in which elements of a window are repeated.
    """
    if row[TENSOR_CORE] > 0 or row[CONVOLUTION] == 3:
        return matrix_elements(row, tensor, 1, ints)
    last = ints[NUM_DIMS + tensor] - 1
    size = copied_length(row, tensor, last, ints)
    for d in range(last):
        size *= box_length(row, tensor, d, 1, ints)
    return size


@lean
def staged_rows(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the number of contiguous rows of an operand's tile in shared memory."""
    if row[TENSOR_CORE] > 0 or row[CONVOLUTION] == 3:
        return matrix_elements(row, tensor, 1, ints) // staged_row(row, tensor, ints)
    rows = 1
    for d in range(ints[NUM_DIMS + tensor]):
        if d != ints[SHARED_INNER + tensor]:
            rows *= copied_length(row, tensor, d, ints)
    return rows


@lean
def staged_row(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the length of a row of an operand's tile in shared memory: the number of elements that are contiguous there.

    A box's rows run along `structure.shared_inner`. In matrices, A's rows run along axis k and B's along axis n; in an implicit
    matrix product they run along all spatial axes of the operand.
    """
    if row[TENSOR_CORE] > 0:
        return row[TILE + MAX_AXES + (ints[MATRIX_K] if tensor == ints[MATRIX_A] else ints[MATRIX_N])]
    if row[CONVOLUTION] != 3:
        return copied_length(row, tensor, ints[SHARED_INNER + tensor], ints)
    return moving_product(row, tensor, 1, SPATIAL_SLOTS, ints)


@lean
def panel_bytes_of(row, ints):  # noqa: ANN001, ANN201
    """Return the bytes of operand B that one reduction step of a wgmma program copies, if B is read in place.

    B is copied in panels of 128 bytes of columns. Every multiplying warpgroup and every image has separate panels.
    """
    own, together = 1, 1
    for axis in range(ints[COLUMNS_FROM], SPATIAL_SLOTS):
        own *= row[TILE + axis]
        together *= row[TILE + MAX_AXES + axis]
    wide = (own * ints[ITEM + ints[MATRIX_B]] + 127) // 128 * 128
    images = row[TILE + MAX_AXES + ints[IMAGES]] if ints[IMAGES] > 0 else 1
    return images * (together // own) * wide * row[TILE + MAX_AXES + ints[MATRIX_K]]


@lean
def shared_bytes_of(row, ints):  # noqa: ANN001, ANN201
    """Return the bytes of shared memory of a GPU block: all staged tiles, each rounded up to 16 bytes, once per stage.

    With `shared_layout` = 1 the rows of a tile with several rows are padded: by 16 bytes on tensor cores, else by 4 elements (the
    code may pad by fewer). If more threads than a warp share a reduction, their exchange reuses the tiles' memory. With wgmma,
    tiles are whole swizzle atoms of 1024 bytes, and B is in panels of 128 bytes of n, separate for each warpgroup's columns.
    Pixels of a convolution with rearranged operands and columns of a transposed B are rows of k, like the rows of A. Two barriers
    of 8 bytes per stage and the alignment of the first tile are added.
    """
    if row[TENSOR_CORE] == 2:
        item, right = ints[ITEM + ints[MATRIX_B]], panel_bytes_of(row, ints)
        if ints[LAID_OUT] + ints[TRANSPOSED] > 0:
            right = matrix_elements(row, ints[MATRIX_B], 1, ints) * item
        along = matrix_elements(row, ints[MATRIX_A], 1, ints) // row[TILE + MAX_AXES + ints[MATRIX_M]]
        left = along * matrix_rows(row, 1, ints) * item
        return 1024 + (row[STAGES] + 1) * (left + right + 16)
    total = 0
    for t in range(ints[NUM_READS]):
        if ints[STAGED + t] == 0 and row[TENSOR_CORE] == 0:
            continue
        rows, length = staged_rows(row, t, ints), staged_row(row, t, ints) * ints[ITEM + t]
        if rows > 1 and row[SHARED_LAYOUT] == 1:
            length += 16 if row[TENSOR_CORE] > 0 else 4 * ints[ITEM + t]
        total += (rows * length + 15) // 16 * 16
    total *= row[STAGES] + 1
    if power_value(row[REDUCE_THREADS]) <= ints[WARP]:
        return total
    return max(total, 4 * (threads_of(row, ints) // ints[WARP]) * spatial_product(row, 0, ints))


@lean
def code_of(row, ints):  # noqa: ANN001, ANN201
    """Return the number of multiply-adds in the unrolled loop body of one thread, the measure of code size.

    A tensor-core instruction counts as 8 (`MMA_CODE`).
    """
    body = spatial_product(row, 0, ints) * reduce_product(row, 0, ints)
    if row[TENSOR_CORE] == 1:
        body = body // (128 * ints[INSTRUCTION_K]) * MMA_CODE * ints[PRODUCTS]
    elif row[TENSOR_CORE] == 2:
        body = computed_product(row, 0, ints) * reduce_product(row, 0, ints)
        body = body // (64 * ints[INSTRUCTION_K] * columns_of(row, ints)) * MMA_CODE
    return body * power_value(row[UNROLL])


@lean
def vectors_of(size, ints):  # noqa: ANN001, ANN201
    """Return how many vector registers hold `size` elements: full vectors, and for a rest of, say, 7 = 4 + 2 + 1 three more."""
    count, rest = size // ints[LANES], size % ints[LANES]
    while rest > 0:
        count += rest & 1
        rest >>= 1
    return count


@lean
def vectors_along(row, ints):  # noqa: ANN001, ANN201
    """Return the number of vectors along the vector axis of a CPU's register tile.

    In a shifted matrix product (convolution = 2) the vector axis is rows and columns of pixels fused.
    """
    slot = ints[VECTOR_SLOT + row[CONVOLUTION]]
    tile = row[TILE + slot]
    if row[CONVOLUTION] == 2:
        tile *= row[TILE + slot - 1]
    return vectors_of(tile, ints)


@lean
def rows_of(row, slot, ints):  # noqa: ANN001, ANN201
    """Return the number of rows of vector accumulators in a CPU's register tile. `slot` is the vector axis."""
    rows = 1
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        if axis != slot and (row[CONVOLUTION] != 2 or axis != slot - 1):
            rows *= row[TILE + axis]
    return rows


@lean
def accumulators_of(row, ints):  # noqa: ANN001, ANN201
    """Return the number of vector accumulators of a CPU's micro-kernel: rows times vectors in a row."""
    return rows_of(row, ints[VECTOR_SLOT + row[CONVOLUTION]], ints) * vectors_along(row, ints)


@lean
def tile_bytes(row, level, ints):  # noqa: ANN001, ANN201
    """Return the bytes of all tensors that the tile of a memory level touches."""
    total = 0
    for t in range(ints[NUM_READS] + 1):
        total += footprint(row, t, level, ints) * ints[ITEM + t]
    return total
