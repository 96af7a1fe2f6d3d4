"""Facts about an operator that legality, model and code generation must agree on.

Each is a rule on the operator alone, written once here: how many tiling levels a kind of hardware has, which reads are
staged in shared memory, which axis the CPU's vectors run along, how wide a global load may be, and what tensor cores
make of a product: which axis is the matrices' m, n and k, and which instructions the hardware has for its data type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.traits import is_convolution, is_product, weights
from gensor_gym.operators.types import ITEM_BYTES, Access, Operator

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


def has_staged(op: Operator) -> bool:
    """Whether some read is staged."""
    return any(is_staged(op, read) for read in op.reads)


def reduction_points(op: Operator) -> int:
    """Points of the whole reduction, 1 where there is none."""
    return math.prod(op.extents[a] for a in op.reduce)


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
    if not is_convolution(op):
        return (0,)
    return (0, 1, 2) if kind == "cpu" else (0, 3)


def needs_copy(op: Operator) -> bool:
    """Whether a shifted matrix product (convolution=2) must copy its input.

    So it is where pixels that are neighbours in the output are not so in the input, or may lie outside it.
    """
    image, (p, q) = op.reads[0], op.spatial[-2:]
    window = any(op.axes[a].extent > 1 for a in op.reduce[1:])
    strided = image.coefficients[-2][p] > 1 or image.coefficients[-1][q] > 1
    return window or strided or image.is_padded(op.extents)


def serves_all(op: Operator, read: Access, task: tuple[int, ...]) -> bool:
    """Whether one copy of a read serves all tasks of a CPU, whose tiles are `task`: several, or all calls, read it alike."""
    kept = op.frozen and read is weights(op)
    return kept or any(task[a] < op.extents[a] and not any(row[a] for row in read.coefficients) for a in op.spatial)


def load_width(op: Operator, read: Access) -> int:
    """Widest global load in elements (1, 2 or 4 of 4 bytes) at which a read can be copied aligned.

    A read qualifies for width w when its rows have a multiple of w elements and either its innermost offset is 0 and its
    innermost dimension moves with exactly one axis longer than 1, by one, or it is a window: rows of its box are copied
    from up to a load earlier on.
    """
    return max(w for w in (1, 2, 4) if w == 1 or is_aligned(op, read, w) or is_aligned_window(op, read, w))


def is_aligned(op: Operator, read: Access, width: int) -> bool:
    """Whether `width`-element loads of this read are aligned for every tile origin that is a multiple of `width`."""
    moving = _innermost_movers(op, read)
    alone = len(moving) == 1 and read.coefficients[-1][moving[0]] == 1 and read.offset[-1] == 0
    return alone and read.view[-1] % width == 0


def is_aligned_window(op: Operator, read: Access, width: int) -> bool:
    """Whether the read is a window, several axes moving its innermost dimension, over rows of whole `width`-element loads."""
    return is_window_row(op, read) and read.view[-1] % width == 0


def is_window_row(op: Operator, read: Access) -> bool:
    """Whether several axes longer than 1 move the innermost dimension of a read."""
    return len(_innermost_movers(op, read)) > 1


def _innermost_movers(op: Operator, read: Access) -> list[int]:
    """Axes longer than 1 that move the innermost dimension of a read."""
    row = read.coefficients[-1]
    return [a for a in range(len(op.axes)) if row[a] and op.axes[a].extent > 1]


@dataclass(frozen=True)
class MatrixAxes:
    """A product as matrices C[m, n] = sum over k of A[m, k] * B[k, n]; all other axes of the operator repeat it."""

    a: int
    """Index of the read that axis m moves: A of a gemm, the weight of a convolution."""
    b: int
    """Index of the read that axis n moves: B of a gemm, the image of a convolution."""
    m: int
    n: int
    k: int
    """Indices of the operator's axes."""


def matrix_copy_width(op: Operator, read: int, inner: int) -> int:
    """Widest aligned copy in elements, of at most 16 bytes, of neighbours of a read along `inner`, for kernels with mma.sync.

    A copy's elements are inside the tensor or outside together, at every place of the other axes.
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
    """The reduce axis that shifts rows along `inner` by elements of under 4 bytes, where aligned loads can be put together.

    -1 where there is none. Kernels with mma.sync then load 16 bytes twice in place of 16 bytes element by element.
    """
    access = op.reads[read]
    row, width = access.coefficients[-1], 16 // ITEM_BYTES[access.tensor.dtype]
    others = [a for a in op.reduce[1:] if row[a] and op.extents[a] > 1]
    moved = [d for d, coefficients in enumerate(access.coefficients) if coefficients[inner]]
    alone = len(others) == 1 and moved == [len(access.view) - 1] and row[inner] == 1
    return others[0] if width > 4 and alone and access.view[-1] % width == 0 else -1


def matrix_axes(op: Operator) -> MatrixAxes | None:
    """Roles of reads and axes on tensor cores; None where the operator is no product of matrices.

    n is the innermost spatial axis, which moves one read alone (B); m is the spatial axis that moves the other read (A)
    alone, the innermost where there are several; k is the first reduce axis.
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


TENSOR_TYPES = {
    "sm_75": {"float16": 8, "int8": 16},
    "sm_80": {"float16": 16, "bfloat16": 16, "tf32": 8, "tf32x3": 8, "int8": 32},
    "sm_89": {"float16": 16, "bfloat16": 16, "tf32": 8, "tf32x3": 8, "int8": 32, "float8_e4m3fn": 32},
}
"""Elements of the k axis that one mma.sync takes, by data type: Turing, Ampere, Ada and newer (PTX ISA, mma shapes
m16n8k8 and m8n8k16; m16n8k16, m16n8k8 and m16n8k32)."""
WGMMA_TYPES = ("float16", "bfloat16", "tf32", "int8", "float8_e4m3fn")
"""Data types that a wgmma multiplies."""
AS_IT_LIES = ("float16", "bfloat16")
"""Of these wgmma reads B[k, n] with n contiguous; of others rows of k alone (PTX ISA, matrix layouts of wgmma)."""
COLUMN_STEPS = {"int8": 16}
"""What columns of a wgmma are a multiple of, 8 for types not named here: integers have 8, 16, 24, 32 and then only
sixteens (PTX ISA), of which narrow ones reach little of the rate."""
WGMMA_ROWS = 64
"""Rows of one wgmma (PTX ISA, m64nNk16)."""
SWIZZLE_BYTES = 128
"""A step of the reduction is one row of this many bytes in a wgmma program's shared memory."""
MAP_STEP = 8
"""Elements from one that a tensor map takes to the next, at most (`cuTensorMapEncodeTiled`): the stride of a convolution."""


FIRST_ASYNC = 80
"""Compute capability from which on cp.async exists (PTX ISA)."""


def has_async_copies(hardware: Hardware) -> bool:
    """Whether the GPU copies from global to shared memory by itself, as text of this project asks for it: by cp.async."""
    return hardware.arch.startswith("sm_") and _capability(hardware) >= FIRST_ASYNC


def _capability(hardware: Hardware) -> int:
    """Compute capability of an NVIDIA GPU, times ten."""
    return int(hardware.arch.removeprefix("sm_").rstrip("af"))


def tensor_core_choices(op: Operator, hardware: Hardware) -> tuple[int, ...]:
    """Values of knob `tensor_core` that mean something: 0 CUDA cores, 1 mma.sync, 2 wgmma with tensor maps.

    Float32 has none: precision is part of the task. Axes must be long enough that some tile fills an instruction; a
    tensor map wants rows of whole 16 bytes. A convolution without groups is laid out for wgmma (`is_laid_out`), unless it
    lies as a product; B of a type that wgmma does not read as it lies is transposed (`is_transposed`).
    """
    roles = matrix_axes(op)
    step = mma_types(hardware).get(op.dtype)
    if roles is None or step is None or not _fills(op, roles, (16, 8, step)):
        return (0,)
    if hardware.arch != "sm_90" or op.dtype not in WGMMA_TYPES or not _has_maps(op, roles):
        return (0, 1)
    row = SWIZZLE_BYTES // ITEM_BYTES[op.reads[roles.a].tensor.dtype]
    return (0, 1, 2) if _fills(op, roles, (WGMMA_ROWS, column_step(op), row)) else (0, 1)


def column_step(op: Operator) -> int:
    """What the columns of a wgmma are a multiple of."""
    return COLUMN_STEPS.get(op.dtype, 8)


def is_transposed(op: Operator) -> bool:
    """Whether a wgmma program begins with a kernel that transposes B[k, n], since it reads rows of k alone."""
    return op.dtype in WGMMA_TYPES and op.dtype not in AS_IT_LIES


def is_laid_out(op: Operator) -> bool:
    """Whether a wgmma program begins with a kernel that lays its operands out with axis k innermost.

    So for a convolution that does not lie as a product: neither the weights [k, c, r, s] nor the image [n, c, h, w] have
    rows of channels. Columns of a product are then pixels of several rows and images.
    """
    return is_convolution(op) and not lies_as_product(op)


def lies_as_product(op: Operator) -> bool:
    """Whether tensor maps describe both operands as they lie: A as rows of k, B and the output as rows of columns.

    So for a gemm, for each product of a batch, and for a convolution with a window of one element whose pixels follow each
    other as they do in the image: weights [k, c], image [n, c, pixels]. Each index moves alone; rows are whole 16 bytes apart.
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
    apart = [a.axis_strides()[x] for x in (roles.m, *others)] + [b.axis_strides()[x] for x in (roles.k, *others)]
    return all(stride * ITEM_BYTES[a.tensor.dtype] % 16 == 0 for stride in apart)


def wgmma_columns(op: Operator) -> tuple[int, ...]:
    """Axes that the columns of a wgmma run over, in the operator's order; ValueError for what is no product of matrices.

    Of operands that are laid out all spatial axes but m. Else those whose elements follow each other in memory.
    """
    roles = matrix_axes(op)
    if roles is None:
        raise ValueError(f"{op} is no product of matrices")
    return tuple(a for a in op.spatial if a != roles.m) if is_laid_out(op) else _run(op, roles)


def _run(op: Operator, roles: MatrixAxes) -> tuple[int, ...]:
    """The innermost spatial axes that move B and the output from one element to the next, and A not at all."""
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


def _has_maps(op: Operator, roles: MatrixAxes) -> bool:
    """Whether tensor maps can describe both operands: as they lie, B transposed, or laid out, no groups, short steps."""
    if is_laid_out(op):
        steps = [max(row[a] for a in op.spatial) for row in op.reads[roles.b].coefficients[-2:]]
        return not is_transposed(op) and len(op.spatial) == 4 and max(steps) <= MAP_STEP
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


def instruction_k(op: Operator, hardware: Hardware, tensor_core: int) -> int:
    """Elements of the k axis that one tensor-core instruction takes; ValueError where there is no such instruction."""
    if tensor_core not in tensor_core_choices(op, hardware) or tensor_core == 0:
        raise ValueError(f"tensor_core={tensor_core}: {op} on {hardware.name} has {tensor_core_choices(op, hardware)}")
    return mma_types(hardware)[op.dtype]


def mma_types(hardware: Hardware) -> dict[str, int]:
    """Row of `TENSOR_TYPES` for a machine; empty before Turing, for a CPU, and for GPUs that have no mma.sync."""
    if not hardware.arch.startswith("sm_"):
        return {}
    number = _capability(hardware)
    found = [types for arch, types in TENSOR_TYPES.items() if int(arch.removeprefix("sm_")) <= number]
    return found[-1] if found else {}


def _fills(op: Operator, roles: MatrixAxes, tile: tuple[int, int, int]) -> bool:
    """Whether such tiles, m x n x k, exist: the longest of an axis above 4 is its extent rounded up to a multiple of 8."""
    extents = [op.axes[axis].extent for axis in (roles.m, roles.n, roles.k)]
    return all(extent > 4 and -(-extent // 8) * 8 >= length for extent, length in zip(extents, tile, strict=True))
