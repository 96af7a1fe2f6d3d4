"""Facts about an operator that legality, model and code generation share.

Each rule depends on the operator and is written once: the number of tiling levels, the reads that are staged in shared memory,
the axis of a CPU's vectors, the width of a global load, the axes m, n, k of a matrix product, and its tensor-core instructions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.traits import is_convolution, is_product, weights
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

LEVELS = {"gpu": 2, "cpu": 3}
"""Number of tiling levels. GPU: register tile, block tile (shared memory). CPU: register tile, L1 tile, task tile (L2)."""


def is_staged(op: Operator, read: Access) -> bool:
    """Whether a GPU block keeps a read's tile in shared memory, because threads of the block share elements.

    They do if the read is constant along some spatial axis, or if two axes index one dimension (a window).
    """
    axes = range(len(op.axes))
    broadcast = any(op.axes[a].extent > 1 and all(row[a] == 0 for row in read.coefficients) for a in op.spatial)
    window = any(sum(1 for a in axes if row[a] and op.axes[a].extent > 1) > 1 for row in read.coefficients)
    return broadcast or window


def has_staged(op: Operator) -> bool:
    """Whether some read is staged."""
    return any(is_staged(op, read) for read in op.reads)


def reduction_points(op: Operator) -> int:
    """Number of points of the whole reduction; 1 without reduce axes."""
    return math.prod(op.extents[a] for a in op.reduce)


def shared_inner(op: Operator, read: Access) -> int:
    """Dimension of a staged read that is contiguous in a GPU's shared memory.

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
    """Index of the axis that vector registers of a CPU run along.

    With convolution = 1 (conv2d only) it is the output channel, with 2 the columns, which are fused with the rows. Otherwise it
    is the innermost spatial axis. If a read strides along that axis, or its extent is 1, a reduce axis is used instead, as in
    gemv and row sums. The reduce axis must be contiguous in every read and must not index a dimension together with another axis,
    which excludes the few columns of a strided window. Without such an axis the innermost spatial axis remains.
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
    """Whether no other axis (longer than 1) indexes a dimension that `axis` indexes."""
    others = any(c and a != axis and op.axes[a].extent > 1 for a, c in enumerate(row))
    return row[axis] == 0 or not others


def convolution_choices(op: Operator, kind: str) -> tuple[int, ...]:
    """Usable values of knob `convolution` for the operator."""
    if not is_convolution(op):
        return (0,)
    return (0, 1, 2) if kind == "cpu" else (0, 3)


def needs_copy(op: Operator) -> bool:
    """Whether a shifted matrix product (convolution = 2) must copy its input.

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
    """Number of elements (1, 2 or 4 of 4 bytes) of the widest aligned global load by which a read can be copied.

    Width w needs rows of a multiple of w elements, and one of two conditions. Either the innermost offset is 0, and exactly one
    axis longer than 1 indexes the innermost dimension, with stride one. Or the read is a window, and copies of its rows begin up
    to one load earlier.
    """
    return max(w for w in (1, 2, 4) if w == 1 or is_aligned(op, read, w) or is_aligned_window(op, read, w))


def is_aligned(op: Operator, read: Access, width: int) -> bool:
    """Whether loads of `width` elements are aligned for every tile origin that is a multiple of `width`."""
    moving = _innermost_movers(op, read)
    alone = len(moving) == 1 and read.coefficients[-1][moving[0]] == 1 and read.offset[-1] == 0
    return alone and read.view[-1] % width == 0


def is_aligned_window(op: Operator, read: Access, width: int) -> bool:
    """Whether a read is a window (`is_window_row`) whose rows are whole loads of `width` elements."""
    return is_window_row(op, read) and read.view[-1] % width == 0


def is_window_row(op: Operator, read: Access) -> bool:
    """Whether several axes longer than 1 index the innermost dimension of a read."""
    return len(_innermost_movers(op, read)) > 1


def _innermost_movers(op: Operator, read: Access) -> list[int]:
    """Axes longer than 1 that index the innermost dimension of a read."""
    row = read.coefficients[-1]
    return [a for a in range(len(op.axes)) if row[a] and op.axes[a].extent > 1]


@dataclass(frozen=True)
class MatrixAxes:
    """Roles in a product of matrices C[m, n] = sum over k of A[m, k] * B[k, n]. All other axes repeat the product."""

    a: int
    """Index of the read that axis m indexes: A of a gemm, the weight of a convolution."""
    b: int
    """Index of the read that axis n indexes: B of a gemm, the image of a convolution."""
    m: int
    n: int
    k: int
    """Indices of the operator's axes."""


def matrix_copy_width(op: Operator, read: int, inner: int) -> int:
    """Number of elements of the widest aligned copy of a read along axis `inner`, at most 16 bytes, for kernels with mma.sync.

    At every position of the other axes, a copy's elements are all inside the tensor or all outside.
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
    """Index of the reduce axis that shifts rows along `inner` by elements of less than 4 bytes, if loads can be combined.

    -1 if there is no such axis. With one, kernels with mma.sync combine two aligned loads of 16 bytes, instead of loading 16
    bytes element by element.
    """
    access = op.reads[read]
    row, width = access.coefficients[-1], 16 // ITEM_BYTES[access.tensor.dtype]
    others = [a for a in op.reduce[1:] if row[a] and op.extents[a] > 1]
    moved = [d for d, coefficients in enumerate(access.coefficients) if coefficients[inner]]
    alone = len(others) == 1 and moved == [len(access.view) - 1] and row[inner] == 1
    return others[0] if width > 4 and alone and access.view[-1] % width == 0 else -1


def matrix_axes(op: Operator) -> MatrixAxes | None:
    """Roles of reads and axes on tensor cores. None if the operator is not a product of matrices.

    n is the innermost spatial axis; it indexes only one of the two reads (B). m is the innermost spatial axis that indexes only
    the other read (A). k is the first reduce axis.
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
    """Compute capability of an NVIDIA GPU times ten, such as 80."""
    return int(hardware.arch.removeprefix("sm_").rstrip("af"))
