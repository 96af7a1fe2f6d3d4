"""Facts about an operator that legality, model and code generation share.

Each rule depends on the operator and is written once: the number of tiling levels, the operands that are staged in shared memory,
the axis of a CPU's vectors, the width of a global load, the axes m, n, k of a matrix product, and its tensor-core instructions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.traits import has_channel_lanes, is_convolution, is_product, weights
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

LEVELS = {"gpu": 2, "cpu": 3}
"""Number of tiling levels. GPU: register tile, block tile (shared memory). CPU: register tile, L1 tile, task tile (L2)."""


def is_staged(op: Operator, read: Access) -> bool:
    """Whether a GPU block copies the tile of an operand to shared memory, because threads of the block share elements.

    They do if the operand is constant along some spatial axis, or if two axes index one dimension (a window).
    """
    axes = range(len(op.axes))
    broadcast = any(op.axes[a].extent > 1 and all(row[a] == 0 for row in read.coefficients) for a in op.spatial)
    window = any(sum(1 for a in axes if row[a] and op.axes[a].extent > 1) > 1 for row in read.coefficients)
    return broadcast or window


def has_staged(op: Operator) -> bool:
    """Whether a GPU block copies the tile of any operand to shared memory (`is_staged`)."""
    return any(is_staged(op, read) for read in op.reads)


def reduction_points(op: Operator) -> int:
    """Return the number of multiply-adds (or other terms) per output element: the product of all reduce extents."""
    return math.prod(op.extents[a] for a in op.reduce)


def shared_inner(op: Operator, read: Access) -> int:
    """Return which dimension of an operand is contiguous in a GPU's shared memory.

    It is the tensor's own innermost dimension if a spatial axis indexes that dimension. Otherwise (A of a matrix product) it is
    the dimension that only the innermost spatial axis indexes, with stride one, so that neighbouring threads read neighbouring
    words.
    """
    rows = read.coefficients
    moving = [[a for a in range(len(op.axes)) if row[a] and op.axes[a].extent > 1] for row in rows]
    last = len(rows) - 1
    if any(a in op.spatial for a in moving[last]):
        return last
    for axis in reversed(op.spatial):
        for d in range(last):
            if moving[d] == [axis] and rows[d][axis] == 1:
                return d
    return last


def vector_axis(op: Operator, convolution: int) -> int:
    """Return the index of the axis along which the vector registers of a CPU run.

    With `convolution` = 1 (conv2d only) it is the output channel, with 2 the columns, which are fused with the rows. Otherwise it
    is the innermost spatial axis. If an operand strides along that axis, or its extent is 1, a reduce axis is used instead, as in
    gemv and row sums. The reduce axis must be contiguous in every operand and must not index a dimension together with another
    axis, which excludes the few columns of a strided window. Without such an axis the innermost spatial axis remains.
    """
    inner = op.spatial[-1]
    if convolution == 1:
        return op.channel_axis
    if convolution == 2:
        return inner
    if op.axes[inner].extent > 1 and all(read.axis_strides()[inner] in (0, 1) for read in op.reads):
        return inner
    for axis in reversed(op.reduce):
        contiguous = op.axes[axis].extent > 1 and all(read.axis_strides()[axis] == 1 for read in op.reads)
        if contiguous and all(_moves_alone(op, row, axis) for read in op.reads for row in read.coefficients):
            return axis
    return inner


def _moves_alone(op: Operator, row: tuple[int, ...], axis: int) -> bool:
    """Whether `axis` is the only axis (longer than 1) that indexes its dimension, whose coefficients are `row`."""
    others = any(c and a != axis and op.axes[a].extent > 1 for a, c in enumerate(row))
    return row[axis] == 0 or not others


def convolution_choices(op: Operator, kind: str) -> tuple[int, ...]:
    """Return the values of knob `convolution` that the operator can use on this kind of hardware."""
    if kind == "cpu":
        return (0, 1, 2) if is_convolution(op) else (0, 1) if has_channel_lanes(op) else (0,)
    return (0, 3) if is_convolution(op) else (0,)


def needs_copy(op: Operator) -> bool:
    """Whether a convolution as a shifted matrix product (convolution = 2) must copy its input image.

    It must if neighbouring pixels of the output are not neighbours in the input, or may be outside of it.
    """
    image, (p, q) = op.reads[0], op.spatial[-2:]
    window = any(op.axes[a].extent > 1 for a in op.reduce[1:])
    strided = image.coefficients[-2][p] > 1 or image.coefficients[-1][q] > 1
    return window or strided or image.is_padded(op.extents)


def serves_all(op: Operator, read: Access, task: tuple[int, ...]) -> bool:
    """Whether several CPU tasks with tiles `task`, or all calls, read the same elements, so that one copy serves them all."""
    kept = op.frozen and read is weights(op)
    return kept or any(task[a] < op.extents[a] and not any(row[a] for row in read.coefficients) for a in op.spatial)


def load_width(op: Operator, read: Access) -> int:
    """Return how many elements (1, 2 or 4 of 4 bytes) the widest aligned load of an operand from global memory takes.

    Width w needs rows of a multiple of w elements, and one of two conditions. Either the innermost offset is 0, and exactly one
    axis longer than 1 indexes the innermost dimension, with stride one. Or the operand is a window, and copies of its rows begin
    up to one load earlier.
    """
    return max(w for w in (1, 2, 4) if w == 1 or is_aligned(op, read, w) or is_aligned_window(op, read, w))


def is_aligned(op: Operator, read: Access, width: int) -> bool:
    """Whether loads of `width` elements of an operand are aligned, for tiles that start at multiples of `width`."""
    moving = _innermost_movers(op, read)
    alone = len(moving) == 1 and read.coefficients[-1][moving[0]] == 1 and read.offset[-1] == 0
    return alone and read.view[-1] % width == 0


def is_aligned_window(op: Operator, read: Access, width: int) -> bool:
    """Whether an operand is a window (`is_window_row`) whose tensor has rows of a multiple of `width` elements."""
    return is_window_row(op, read) and read.view[-1] % width == 0


def is_window_row(op: Operator, read: Access) -> bool:
    """Whether several axes longer than 1 index the innermost dimension of an operand, as in a window over an image."""
    return len(_innermost_movers(op, read)) > 1


def _innermost_movers(op: Operator, read: Access) -> list[int]:
    """Return the axes longer than 1 that index the innermost dimension of an operand."""
    row = read.coefficients[-1]
    return [a for a in range(len(op.axes)) if row[a] and op.axes[a].extent > 1]


@dataclass(frozen=True)
class MatrixAxes:
    """Which reads and axes of an operator form a product of matrices C[m, n] = sum over k of A[m, k] * B[k, n].

    All other axes repeat the product.
    """

    a: int
    """Index, among the operator's inputs, of the one that axis m indexes: A of a gemm, the weights of a convolution."""
    b: int
    """Index, among the operator's inputs, of the one that axis n indexes: B of a gemm, the image of a convolution."""
    m: int
    n: int
    k: int
    """Index of the operator's axis k; `m` and `n` are indices of axes, too."""


def matrix_copy_width(op: Operator, read: int, inner: int) -> int:
    """Return how many elements of an operand one aligned copy takes along axis `inner`, for kernels with mma.sync.

    A copy has at most 16 bytes. At every position of the other axes, its elements are all inside the tensor or all outside.
    """
    access = op.reads[read]
    strides = access.axis_strides()
    moved = [d for d, row in enumerate(access.coefficients) if row[inner]]
    if strides[inner] != 1 or len(moved) != 1:
        return 1
    row, live = access.coefficients[moved[0]], [a for a in range(len(op.axes)) if a != inner and op.extents[a] > 1]
    base = sum(stride * offset for stride, offset in zip(access.strides(), access.offset, strict=True))
    last = min(access.view[moved[0]], access.span(moved[0], op.extents)[1] + 1)
    sizes = [last, access.offset[moved[0]], base, *(strides[a] for a in live), *(row[a] for a in live)]
    sizes += [op.extents[inner]] if inner in op.reduce else []
    item = ITEM_BYTES[access.tensor.dtype]
    return next((w for w in (16 // item, 8 // item, 4 // item) if w > 1 and all(size % w == 0 for size in sizes)), 1)


def shifting_axis(op: Operator, read: int, inner: int) -> int:
    """Return the reduce axis that shifts an operand's rows by single elements of less than 4 bytes, or -1.

    If there is such an axis, kernels with mma.sync combine two aligned loads of 16 bytes, instead of loading 16 bytes element by
    element. `inner` is the axis along the rows.
    """
    access = op.reads[read]
    row, width = access.coefficients[-1], 16 // ITEM_BYTES[access.tensor.dtype]
    others = [a for a in op.reduce[1:] if row[a] and op.extents[a] > 1]
    moved = [d for d, coefficients in enumerate(access.coefficients) if coefficients[inner]]
    alone = len(others) == 1 and moved == [len(access.view) - 1] and row[inner] == 1
    return others[0] if width > 4 and alone and access.view[-1] % width == 0 else -1


def matrix_axes(op: Operator) -> MatrixAxes | None:
    """Return the roles of an operator's reads and axes on tensor cores, or None if it is not a product of matrices.

    n is the innermost spatial axis; it indexes only one of the two operands (B). m is the innermost spatial axis that indexes
    only the other (A). k is the first reduce axis.
    """
    if not is_product(op):
        return None
    n, k = op.spatial[-1], op.reduce[0]
    strides = [read.axis_strides() for read in op.reads]
    moved = [t for t in (0, 1) if strides[t][n]]
    if len(moved) != 1 or not all(read[k] for read in strides):
        return None
    b = moved[0]
    rows = [axis for axis in op.spatial if strides[1 - b][axis] and not strides[b][axis]]
    return MatrixAxes(1 - b, b, rows[-1], n, k) if rows else None


FIRST_ASYNC = 80
"""First compute capability with cp.async, times ten (PTX ISA)."""


def has_async_copies(hardware: Hardware) -> bool:
    """Whether the GPU has asynchronous copies from global to shared memory (cp.async)."""
    return hardware.arch.startswith("sm_") and capability(hardware) >= FIRST_ASYNC


def capability(hardware: Hardware) -> int:
    """Return the compute capability of an NVIDIA GPU times ten, such as 80."""
    return int(hardware.arch.removeprefix("sm_").rstrip("af"))
