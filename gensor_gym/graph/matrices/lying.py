"""Layout in memory of a product's operands for wgmma: read in place, transposed, or rearranged by a first kernel.

The rules depend only on the operator. Legality, model and code generation share them.
"""

from __future__ import annotations

import math

from gensor_gym.graph.structure import MatrixAxes, matrix_axes
from gensor_gym.operators.traits import convolution_places, is_convolution
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

WGMMA_TYPES = ("float16", "bfloat16", "tf32", "int8", "float8_e4m3fn")
"""Data types that wgmma can multiply."""
AS_IT_LIES = ("float16", "bfloat16")
"""Data types for which wgmma reads B[k, n] with n contiguous. For other types k must be contiguous (PTX ISA, matrix layouts of
wgmma)."""
SWIZZLE_BYTES = 128
"""Bytes of an operand's row in the shared memory of a wgmma program. A step of the reduction is one such row."""
MAP_STEP = 8
"""Largest element stride of a tensor map (`cuTensorMapEncodeTiled`), which limits the stride of a convolution."""


def is_transposed(op: Operator) -> bool:
    """Whether a wgmma program of a matrix product reads B as [n, k], with contiguous k.

    If B is [k, n] in memory, a first kernel transposes it.
    """
    return _reads_rows(op) and convolution_places(op) is None


def is_laid_out(op: Operator) -> bool:
    """Whether a wgmma program of a convolution needs operands with the channels innermost in memory.

    True for a convolution that cannot be read in place as a matrix product, or whose type needs contiguous k. A first kernel
    rearranges operands whose channels are elsewhere (`moved_reads`): an image [n, c, h, w], and weights [k, c, r, s].
    """
    return convolution_places(op) is not None and (_reads_rows(op) or not lies_as_product(op))


def moved_reads(op: Operator) -> tuple[int, ...]:
    """Return the indices of the operands that a first kernel rearranges or transposes for a wgmma program."""
    roles = matrix_axes(op)
    if roles is None or not (is_laid_out(op) or is_transposed(op)):
        return ()
    if is_transposed(op):
        return () if _has_rows(op) else (roles.b,)
    return tuple(t for t, read in enumerate(op.reads) if not _has_channels_last(op, read))


def _has_channels_last(op: Operator, read: Access) -> bool:
    return read.coefficients[-1][op.reduce[0]] > 0


def _reads_rows(op: Operator) -> bool:
    """Whether wgmma can multiply the data type, and reads B as [n, k]: its type requires this, or B is [n, k] in memory."""
    return op.dtype in WGMMA_TYPES and (op.dtype not in AS_IT_LIES or _has_rows(op))


def _has_rows(op: Operator) -> bool:
    """Whether B of a matrix product is [n, k] in memory."""
    roles = matrix_axes(op)
    strides = op.reads[roles.b].axis_strides() if roles is not None else ()
    return roles is not None and strides[roles.k] == 1 < strides[roles.n]


def is_folded(op: Operator) -> bool:
    """Whether a wgmma program of a convolution treats a whole row of its window as channels.

    True if neither operand has channels last, all channels at all positions of a window's row fit in one step of the reduction,
    and the channels alone fill less than a step, as in the first layers of networks with 3 or 16 channels. False for windows of
    one row with several positions.
    """
    roles = matrix_axes(op)
    if roles is None or op.dtype not in AS_IT_LIES or not is_laid_out(op) or len(moved_reads(op)) < len(op.reads):
        return False
    _, row, place = (op.extents[a] for a in op.reduce)
    step, channels = step_length(op, roles), op.extents[roles.k]
    return channels * place <= step and longest(channels) < step and (row > 1 or place == 1)


def is_filled_up(op: Operator) -> bool:
    """Whether zeros pad the reduction step of a convolution by wgmma, because its channels do not fill the step.

    True if a window's row counts as channels (`is_folded`), or if channels fill at least half a step.
    """
    roles = matrix_axes(op)
    if roles is None or not is_laid_out(op):
        return False
    return is_folded(op) or longest(op.extents[roles.k]) >= step_length(op, roles) // 2


def step_length(op: Operator, roles: MatrixAxes) -> int:
    """Return the number of reduction elements in one step of wgmma: 128 bytes, one swizzled row of shared memory."""
    return SWIZZLE_BYTES // ITEM_BYTES[op.reads[roles.a].tensor.dtype]


def lies_as_product(op: Operator) -> bool:
    """Whether wgmma can read both operands in place: A as rows of k, B and the output as rows of columns.

    True for a gemm, for each product of a batch, and for a convolution with a window of one element whose output pixels are in
    the order of the image's pixels: weights [k, c], image [n, c, pixels], output [n, k, pixels] or [n, pixels, k]. At most one
    axis indexes each dimension, and rows are multiples of 16 bytes apart.
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
    """Return the axis over the images of a batch, if a wgmma may compute columns of several images at once; else -1.

    A wgmma may for a convolution with a window of one element that is read in place as a product. Columns of several images are
    whole panels of 64 pixels. The axis does not index A.
    """
    roles = matrix_axes(op)
    if roles is None or not is_convolution(op) or not lies_as_product(op):
        return -1
    columns = _run(op, roles)
    pixels = math.prod(1 << longest(op.extents[a]).bit_length() - 1 for a in columns)
    others = [a for a in op.spatial if a != roles.m and a not in columns and not op.reads[roles.a].axis_strides()[a]]
    return others[0] if others and pixels >= SWIZZLE_BYTES // ITEM_BYTES[op.output.dtype] else -1


def wgmma_columns(op: Operator) -> tuple[int, ...]:
    """Return the axes along which the columns of a wgmma run, in the operator's order.

    For a convolution with rearranged operands these are all spatial axes except m, else the innermost axes with contiguous
    elements. ValueError if the operator is not a product of matrices.
    """
    roles = matrix_axes(op)
    if roles is None:
        raise ValueError(f"{op} is no product of matrices")
    if is_transposed(op):
        return (roles.n,)
    return tuple(a for a in op.spatial if a != roles.m) if is_laid_out(op) else _run(op, roles)


def _run(op: Operator, roles: MatrixAxes) -> tuple[int, ...]:
    """Return the innermost spatial axes along which B is contiguous, the output has equal steps, and A is constant."""
    found: list[int] = []
    step = op.write.axis_strides()[op.spatial[-1]]
    for axis in reversed(op.spatial):
        run = math.prod(op.axes[a].extent for a in found)
        moves = [access.axis_strides()[axis] for access in (op.reads[roles.b], op.write)]
        if moves != [run, run * step] or op.reads[roles.a].axis_strides()[axis]:
            break
        found.insert(0, axis)
    return tuple(found)


def _move_alone(op: Operator, read: Access) -> bool:
    """Whether at most one axis longer than 1 indexes each dimension of an operand."""
    return all(sum(1 for a, c in enumerate(row) if c and op.axes[a].extent > 1) <= 1 for row in read.coefficients)


def has_maps(op: Operator, roles: MatrixAxes) -> bool:
    """Whether tensor maps (descriptors for TMA copies) can describe both operands of a wgmma program.

    An operand can be rearranged only without groups and with strides of at most `MAP_STEP`. Rows that are read in place are
    multiples of 16 bytes apart.
    """
    if is_laid_out(op):
        image = op.reads[roles.b]
        steps = [max(row[a] for a in op.spatial) for row in image.coefficients]
        places = [t for t in range(len(op.reads)) if t not in moved_reads(op)]
        whole = all(op.reads[t].view[-1] * ITEM_BYTES[op.reads[t].tensor.dtype] % 16 == 0 for t in places)
        return len(op.spatial) == 4 and max(steps) <= MAP_STEP and whole
    if not is_transposed(op):
        return lies_as_product(op)
    a, b = op.reads[roles.a], op.reads[roles.b]
    whole = a.tensor.shape[-1] * ITEM_BYTES[a.tensor.dtype] % 16 == 0
    inner = (roles.n, roles.k) if _has_rows(op) else (roles.k, roles.n)
    return whole and _lies(op, a, (roles.m, roles.k)) and _lies(op, b, inner)


def _lies(op: Operator, read: Access, inner: tuple[int, int]) -> bool:
    """Whether an operand is a whole tensor: one matrix, or a batch of matrices, with the axes `inner` as (row, column)."""
    batch = tuple(axis for axis in op.spatial if axis not in inner and read.axis_strides()[axis])
    unit = tuple(tuple(int(a == axis) for a in range(len(op.axes))) for axis in (*batch, *inner))
    return read.coefficients == unit and not any(read.offset) and read.view == read.tensor.shape


def longest(extent: int) -> int:
    """Return the longest tile of an axis: its extent rounded up to a multiple of 8, or to a power of two if below 8."""
    return 1 << (extent - 1).bit_length() if extent < 8 else -(-extent // 8) * 8
