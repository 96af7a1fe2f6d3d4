"""Facts about an operator that legality, model and code generation must agree on.

Each is a rule on the operator alone, written once here: how many tiling levels a kind of hardware has, which reads are
staged in shared memory, which axis the CPU's vectors run along, how wide a global load may be.
"""

from __future__ import annotations

from gensor_gym.operators.types import Access, Operator

LEVELS = {"gpu": 2, "cpu": 3}
"""GPU: register tile, block tile (shared memory). CPU: register tile, L1 tile, task tile (L2)."""


def is_staged(op: Operator, read: Access) -> bool:
    """Whether a GPU block keeps this read's tile in shared memory: only where threads of the block share elements.

    They do when the read is constant along some spatial axis, or when two axes meet in one dimension (a window).
    """
    axes = range(len(op.axes))
    broadcast = any(op.axes[a].extent > 1 and all(row[a] == 0 for row in read.coefficients) for a in op.spatial)
    window = any(sum(1 for a in axes if row[a] and op.axes[a].extent > 1) > 1 for row in read.coefficients)
    return broadcast or window


def shared_inner(op: Operator, read: Access) -> int:
    """Dimension of a staged read that is contiguous in a GPU's shared memory.

    The tensor's own innermost dimension where a spatial axis moves it. Otherwise (A of a matrix product) the dimension
    that the innermost spatial axis moves by one and alone, so that threads side by side read neighbouring words.
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

    convolution=1 (conv2d only): the output channel; 2: the columns, which are fused with the rows. Otherwise the
    innermost spatial axis, unless a read strides along it (or it has extent 1) while some reduce axis is contiguous in
    every read and moves no dimension together with another axis (dot products: gemv, row sums; not the columns of a
    strided window, which are few).
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
    """Whether no other axis (longer than 1) moves the index along a dimension that `axis` moves."""
    others = any(c and a != axis and op.axes[a].extent > 1 for a, c in enumerate(row))
    return row[axis] == 0 or not others


def convolution_choices(op: Operator, kind: str) -> tuple[int, ...]:
    """Values of knob `convolution` that mean something for this operator."""
    return (0, 1, 2) if op.name == "conv2d" and kind == "cpu" else (0,)


def needs_copy(op: Operator) -> bool:
    """Whether a shifted matrix product (convolution=2) must copy its input.

    So it is where pixels that are neighbours in the output are not so in the input, or may lie outside it.
    """
    image, (p, q) = op.reads[0], op.spatial[-2:]
    window = any(op.axes[a].extent > 1 for a in op.reduce[1:])
    strided = image.coefficients[-2][p] > 1 or image.coefficients[-1][q] > 1
    return window or strided or image.is_padded(op.extents)


def load_width(op: Operator) -> int:
    """Widest global load in elements (1, 2 or 4 of 4 bytes) at which some read can be copied aligned.

    A read qualifies for width w when its rows have a multiple of w elements, its innermost offset is 0 and its
    innermost dimension moves with exactly one axis longer than 1, by one.
    """
    return max((w for read in op.reads for w in (1, 2, 4) if w == 1 or is_aligned(op, read, w)), default=1)


def is_aligned(op: Operator, read: Access, width: int) -> bool:
    """Whether `width`-element loads of this read are aligned for every tile origin that is a multiple of `width`."""
    row = read.coefficients[-1]
    moving = [a for a in range(len(op.axes)) if row[a] and op.axes[a].extent > 1]
    return len(moving) == 1 and row[moving[0]] == 1 and read.offset[-1] == 0 and read.view[-1] % width == 0
