"""Layout of a product's operands for wgmma and its tensor maps: in place, transposed, or laid out by a first kernel.

These rules depend only on the operator; legality, model and code generation share them.
"""

from __future__ import annotations

import math

from gensor_gym.graph.structure import MatrixAxes, matrix_axes
from gensor_gym.operators.traits import is_convolution
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

WGMMA_TYPES = ("float16", "bfloat16", "tf32", "int8", "float8_e4m3fn")
"""Data types that a wgmma multiplies."""
AS_IT_LIES = ("float16", "bfloat16")
"""Types for which wgmma reads B[k, n] with n contiguous; others need rows of k (PTX ISA, matrix layouts of wgmma)."""
SWIZZLE_BYTES = 128
"""A step of the reduction is one row of this many bytes in a wgmma program's shared memory."""
MAP_STEP = 8
"""Elements from one that a tensor map takes to the next, at most (`cuTensorMapEncodeTiled`): the stride of a convolution."""


def is_transposed(op: Operator) -> bool:
    """Whether a wgmma program begins with a kernel that transposes B[k, n], because it needs rows of k."""
    return _reads_rows(op) and not is_convolution(op)


def is_laid_out(op: Operator) -> bool:
    """Whether a wgmma program begins with a kernel that lays its operands out with axis k innermost.

    True for a convolution without the layout of a product, or whose type needs rows of k: neither the weights [k, c, r, s] nor
    the image [n, c, h, w] have rows of channels. Columns are then pixels of several rows and images.
    """
    return is_convolution(op) and (_reads_rows(op) or not lies_as_product(op))


def _reads_rows(op: Operator) -> bool:
    """Whether wgmma multiplies the type and needs rows of k."""
    return op.dtype in WGMMA_TYPES and op.dtype not in AS_IT_LIES


def is_folded(op: Operator) -> bool:
    """Whether a wgmma program of a convolution that is laid out takes whole rows of its window as channels.

    True if all channels at all positions of such a row fit one step of the reduction, and channels by themselves fill less than
    one: the first layers of networks, of 3 channels or 16. Windows of one row with several places are left out.
    """
    roles = matrix_axes(op)
    if roles is None or op.dtype not in AS_IT_LIES or not is_laid_out(op) or len(op.reduce) != 3:
        return False
    _, row, place = (op.extents[a] for a in op.reduce)
    step, channels = step_length(op, roles), op.extents[roles.k]
    return channels * place <= step and longest(channels) < step and (row > 1 or place == 1)


def is_filled_up(op: Operator) -> bool:
    """Whether zeros pad a wgmma's step of a laid-out convolution: if it is folded, or half of the step is channels."""
    roles = matrix_axes(op)
    if roles is None or not is_laid_out(op):
        return False
    return is_folded(op) or longest(op.extents[roles.k]) >= step_length(op, roles) // 2


def step_length(op: Operator, roles: MatrixAxes) -> int:
    """Elements of the reduction in a step of wgmma: one swizzled row."""
    return SWIZZLE_BYTES // ITEM_BYTES[op.reads[roles.a].tensor.dtype]


def lies_as_product(op: Operator) -> bool:
    """Whether tensor maps describe both operands in place: A as rows of k, B and the output as rows of columns.

    True for a gemm, for each product of a batch, and for a convolution with a window of one element whose pixels follow each
    other as they do in the image: weights [k, c], image [n, c, pixels]. Each index moves independently; rows are multiples of 16
    bytes apart.
    """
    roles = matrix_axes(op)
    if roles is None or any(op.axes[a].extent > 1 for a in op.reduce if a != roles.k):
        return False
    a, b = op.reads[roles.a], op.reads[roles.b]
    columns = _run(op, roles)
    others = [axis for axis in op.spatial if axis != roles.m and axis not in columns]
    if len(others) > 1 or roles.n not in columns or a.axis_strides()[roles.k] != 1:
        return False
    if any(read.is_padded(op.extents) or not _move_alone(op, read) for read in op.reads):
        return False
    apart = [a.axis_strides()[x] for x in (roles.m, *others)] + [b.axis_strides()[x] for x in others]
    item = ITEM_BYTES[a.tensor.dtype]
    return all(stride * item % 16 == 0 for stride in apart) and _is_whole(op, roles)


def _is_whole(op: Operator, roles: MatrixAxes) -> bool:
    """Whether rows of B are multiples of 16 bytes apart."""
    b = op.reads[roles.b]
    return b.axis_strides()[roles.k] * ITEM_BYTES[b.tensor.dtype] % 16 == 0


def images_axis(op: Operator) -> int:
    """The axis of a product as it lies along which B and the output repeat and A does not; -1 if columns are not on it.

    These are the images of a convolution with a window of one element. A wgmma takes columns of several images, in whole panels
    of 64.
    """
    roles = matrix_axes(op)
    if roles is None or not is_convolution(op) or not lies_as_product(op):
        return -1
    columns = _run(op, roles)
    pixels = math.prod(1 << longest(op.extents[a]).bit_length() - 1 for a in columns)
    others = [a for a in op.spatial if a != roles.m and a not in columns and not op.reads[roles.a].axis_strides()[a]]
    return others[0] if others and pixels >= SWIZZLE_BYTES // ITEM_BYTES[op.output.dtype] else -1


def wgmma_columns(op: Operator) -> tuple[int, ...]:
    """Axes of a wgmma's columns, in the operator's order; ValueError if the operator is no product of matrices.

    All spatial axes but m if operands are laid out, else those with contiguous elements.
    """
    roles = matrix_axes(op)
    if roles is None:
        raise ValueError(f"{op} is no product of matrices")
    return tuple(a for a in op.spatial if a != roles.m) if is_laid_out(op) else _run(op, roles)


def _run(op: Operator, roles: MatrixAxes) -> tuple[int, ...]:
    """The innermost spatial axes that move B and the output contiguously, and A not at all."""
    found: list[int] = []
    for axis in reversed(op.spatial):
        run = math.prod(op.axes[a].extent for a in found)
        moves = [access.axis_strides()[axis] for access in (op.reads[roles.b], op.write)]
        if moves != [run, run] or op.reads[roles.a].axis_strides()[axis]:
            break
        found.insert(0, axis)
    return tuple(found)


def _move_alone(op: Operator, read: Access) -> bool:
    """Whether at most one axis longer than 1 moves the index along every dimension of a read."""
    return all(sum(1 for a, c in enumerate(row) if c and op.axes[a].extent > 1) <= 1 for row in read.coefficients)


def has_maps(op: Operator, roles: MatrixAxes) -> bool:
    """Whether tensor maps can describe both operands: in place, with B transposed, or laid out; no groups, short steps."""
    if is_laid_out(op):
        steps = [max(row[a] for a in op.spatial) for row in op.reads[roles.b].coefficients[-2:]]
        return len(op.spatial) == 4 and max(steps) <= MAP_STEP
    if not is_transposed(op):
        return lies_as_product(op)
    a, b = op.reads[roles.a], op.reads[roles.b]
    whole = a.tensor.shape[-1] * ITEM_BYTES[a.tensor.dtype] % 16 == 0
    return whole and _lies(op, a, (roles.m, roles.k)) and _lies(op, b, (roles.k, roles.n))


def _lies(op: Operator, read: Access, inner: tuple[int, int]) -> bool:
    """Whether a read is one matrix, or a batch of them, over the two axes `inner`, row and column, at its own extents."""
    batch = tuple(axis for axis in op.spatial if axis not in inner and read.axis_strides()[axis])
    unit = tuple(tuple(int(a == axis) for a in range(len(op.axes))) for axis in (*batch, *inner))
    return read.coefficients == unit and not any(read.offset) and read.view == read.tensor.shape


def longest(extent: int) -> int:
    """The longest tile of an axis: its extent rounded up to a power of two below 8, to a multiple of 8 from there on."""
    return 1 << (extent - 1).bit_length() if extent < 8 else -(-extent // 8) * 8
