"""Sizes that follow from a program's tiles: boxes of tensors, products of tile sizes, numbers of loop steps. Compiled."""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.matrices.choices import WGMMA_ROWS
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_DIMS, SPATIAL_SLOTS, TENSOR_CORE, TILE
from gensor_gym.graph.tables.tables import (
    COLUMNS_FROM,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    FOLDED,
    ITEM,
    LAID_OUT,
    MATRIX_B,
    MATRIX_K,
    MATRIX_M,
    NUM_DIMS,
    NUM_READS,
    PAIR_WIDTH,
    PAIRS,
    STRIDE,
    VIEW,
)


@lean
def power_value(index):  # noqa: ANN001, ANN201
    """Return 2 to the power of `index`: the value of a knob whose values are 1, 2, 4, .."""
    return 1 << index


@lean
def footprint(row, tensor, level, ints):  # noqa: ANN001, ANN201
    """Return how many elements of a tensor the tile of a memory level touches, as a dense box."""
    size = 1
    for d in range(ints[NUM_DIMS + tensor]):
        size *= box_length(row, tensor, d, level, ints)
    return size


@lean
def box_length(row, tensor, dimension, level, ints):  # noqa: ANN001, ANN201
    """Return the length, along one dimension of a tensor, of the box that the tile of a memory level touches."""
    reach = 1
    at = PAIRS + (tensor * MAX_DIMS + dimension) * PAIR_WIDTH
    for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
        reach += ints[pair + 1] * (row[TILE + level * MAX_AXES + ints[pair]] - 1)
    return reach


@lean
def tensor_bytes(tensor, ints):  # noqa: ANN001, ANN201
    """Return the bytes of a whole tensor."""
    size = ints[ITEM + tensor] * 1.0
    for d in range(ints[NUM_DIMS + tensor]):
        size *= ints[VIEW + tensor * MAX_DIMS + d]
    return size


@lean
def folded_bytes(ints):  # noqa: ANN001, ANN201
    """Return the bytes of an image that is copied with whole rows of the window as channels, for wgmma.

    Each pixel takes a multiple of 16 bytes.
    """
    image, k = ints[MATRIX_B], ints[MATRIX_K]
    pixels = ints[VIEW + image * MAX_DIMS] * ints[VIEW + image * MAX_DIMS + 2] * ints[EXTENT + SPATIAL_SLOTS - 1]
    together = ints[EXTENT + k] * ints[EXTENT + ints[FOLDED]] * ints[ITEM + image]
    return pixels * ((together + 15) // 16 * 16) * 1.0


@lean
def operand_bytes(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the bytes of an operand that the main kernel reads: of the tensor, or of its rearranged copy."""
    if row[TENSOR_CORE] == 2 and ints[FOLDED] > 0 and tensor == ints[MATRIX_B]:
        return folded_bytes(ints)
    return tensor_bytes(tensor, ints)


@lean
def box_width(row, tensor, level, ints):  # noqa: ANN001, ANN201
    """Return the length, along a tensor's innermost dimension, of the box that the tile of a memory level touches."""
    return box_length(row, tensor, ints[NUM_DIMS + tensor] - 1, level, ints)


@lean
def has_window_rows(tensor, ints):  # noqa: ANN001, ANN201
    """Whether several axes, even of length 1, index the innermost dimension of an operand, as in a window over an image."""
    return ints[PAIRS + (tensor * MAX_DIMS + ints[NUM_DIMS + tensor] - 1) * PAIR_WIDTH] > 1


@lean
def has_windows(ints):  # noqa: ANN001, ANN201
    """Whether several axes, even of length 1, index the innermost dimension of some operand."""
    for t in range(ints[NUM_READS]):
        if has_window_rows(t, ints):
            return True
    return False


@lean
def spatial_product(row, level, ints):  # noqa: ANN001, ANN201
    """Return the number of output elements in the tile of a memory level."""
    product = 1
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        product *= row[TILE + level * MAX_AXES + axis]
    return product


@lean
def reduce_product(row, level, ints):  # noqa: ANN001, ANN201
    """Return the number of reduction points (combinations of reduction indices) in the tile of a memory level."""
    product = 1
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        product *= row[TILE + level * MAX_AXES + axis]
    return product


@lean
def taken_together(row, axis, ints):  # noqa: ANN001, ANN201
    """Return (extent, block tile) along a spatial axis, with wgmma's column axes combined into one.

    If the columns of a wgmma run over several axes in memory order, the innermost of these axes gets their product and the other
    axes get 1: a tile of 2 rows of 32 pixels is a run of 64 pixels, for any width of the image.
    """
    inner = SPATIAL_SLOTS - 1
    if row[TENSOR_CORE] < 2 or ints[LAID_OUT] == 1 or axis < ints[COLUMNS_FROM] or ints[COLUMNS_FROM] == inner:
        return ints[EXTENT + axis], row[TILE + MAX_AXES + axis]
    extent, tile = 1, 1
    if axis == inner:
        for column in range(ints[COLUMNS_FROM], SPATIAL_SLOTS):
            extent *= ints[EXTENT + column]
            tile *= row[TILE + MAX_AXES + column]
    return extent, tile


@lean
def tiles_along(row, axis, ints):  # noqa: ANN001, ANN201
    """Return the number of block tiles along a spatial axis."""
    extent, tile = taken_together(row, axis, ints)
    return (extent + tile - 1) // tile


@lean
def reduce_steps(row, level, ints):  # noqa: ANN001, ANN201
    """Return the number of iterations of the reduction loop over tiles of a memory level.

    The axis of a window's rows that a wgmma program treats as channels (`matrices.lying.is_folded`) is left out.
    """
    steps = 1
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        if axis == ints[FOLDED] and row[TENSOR_CORE] == 2:
            continue
        tile = row[TILE + level * MAX_AXES + axis]
        steps *= (ints[EXTENT + axis] + tile - 1) // tile
    return steps


@lean
def moving_product(row, tensor, level, end, ints):  # noqa: ANN001, ANN201
    """Return the product of the tile sizes of a level over those axes that index a tensor.

    Only axes before slot `end` count.
    """
    size = 1
    for axis in range(ints[FIRST_SPATIAL], end):
        if ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            size *= row[TILE + level * MAX_AXES + axis]
    return size


@lean
def fragment(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return how many elements of an operand a thread holds for one reduction point of its register tile."""
    return moving_product(row, tensor, 0, SPATIAL_SLOTS, ints)


@lean
def columns_of(row, ints):  # noqa: ANN001, ANN201
    """Return the number of columns of a wgmma: the register tile's size over all spatial axes except m."""
    return spatial_product(row, 0, ints) // row[TILE + ints[MATRIX_M]]


@lean
def matrix_rows(row, level, ints):  # noqa: ANN001, ANN201
    """Return how many rows tensor cores compute for a tile along m: at least 64 for wgmma."""
    rows = row[TILE + level * MAX_AXES + ints[MATRIX_M]]
    return max(rows, WGMMA_ROWS) if row[TENSOR_CORE] == 2 else rows


@lean
def computed_product(row, level, ints):  # noqa: ANN001, ANN201
    """Return how many output elements tensor cores compute for a tile, with the rows that wgmma adds (`matrix_rows`)."""
    return spatial_product(row, level, ints) // row[TILE + level * MAX_AXES + ints[MATRIX_M]] * matrix_rows(row, level, ints)


@lean
def workers_of(row, ints):  # noqa: ANN001, ANN201
    """Return the number of register tiles in a block tile.

    A thread (or a team of `reduce_threads`), with mma.sync a warp, with wgmma a warpgroup computes each.
    """
    return spatial_product(row, 1, ints) // spatial_product(row, 0, ints)


@lean
def matrix_elements(row, tensor, level, ints):  # noqa: ANN001, ANN201
    """Return the number of elements of an operand's tile as a matrix, in which elements of a window are repeated.

    It is the product of the tile sizes over the axes that index the operand.
    """
    return moving_product(row, tensor, level, ints[END_REDUCE], ints)
