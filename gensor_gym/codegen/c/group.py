"""Choice of the int8 and bfloat16 products to compute in groups: an instruction adds several products to each 32-bit lane."""

from __future__ import annotations

from gensor_gym.operators.traits import is_product
from gensor_gym.operators.types import Access, Operator

GROUP = 4
"""Number of adjacent int8 elements along the reduction that one instruction multiplies in each lane."""
GROUPS = {"int8": GROUP, "bfloat16": 2}
"""Data type -> number of adjacent elements along the reduction that one instruction multiplies in each lane.

Products of other types are computed element by element.
"""
BIAS = "INT32_C(-2139062144)"
"""C constant whose four bytes are all 128."""


def splat(word: str, width: int) -> str:
    """Return the C text of a vector of `width` lanes that all have the value `word`."""
    return word if width == 1 else f"splat_{width}({word})"


def group_axis(op: Operator, vector: int, packs: list[bool]) -> int:
    """Return the reduction axis whose elements are multiplied in groups, or -1 if the product is computed element by element.

    `vector` is the axis of the lanes, and `packs` says which operands are packed. Groups are possible for types of `GROUPS` in
    three cases. With a single reduction axis, the first operand must be equal in all lanes and contiguous along the axis, and the
    second packed with contiguous lanes. If lanes run along the reduction, both operands must be unpacked and contiguous. In a
    convolution with both operands packed, the axis is that of the input channels. If these are last in memory, only padding
    requires that the image is packed.
    """
    if op.dtype not in GROUPS or not is_product(op) or len(packs) < 2:
        return -1
    if vector in op.reduce:
        return vector if not any(packs) and _read_along(op, vector) else -1
    if not packs[1]:
        return -1
    if (channel := _channel_axis(op, vector, packs[0])) >= 0:
        return channel
    scalar, lanes = op.reads
    axes = [a for a in op.reduce if op.extents[a] > 1]
    if len(axes) != 1 or scalar.is_padded(op.extents) or lanes.is_padded(op.extents):
        return -1
    axis = axes[0]
    reads_words = scalar.axis_strides()[vector] == 0 and _moved_by(scalar, -1) == [axis]
    reads_rows = len(lanes.view) > 1 and _moved_by(lanes, -1) == [vector] and _moved_by(lanes, -2) == [axis]
    alone = [sum(1 for row in read.coefficients if row[axis]) for read in (scalar, lanes)]
    return axis if reads_words and reads_rows and alone == [1, 1] else -1


def _channel_axis(op: Operator, vector: int, packs_pixels: bool) -> int:
    """Return the axis of a convolution's input channels if vectors run along its output channels; -1 in any other case."""
    pixels, filters = op.reads
    alone = [row for row in filters.coefficients if row[vector]] == [_unit(op, vector)]
    if not alone or any(row[vector] for row in pixels.coefficients) or filters.is_padded(op.extents):
        return -1
    for axis in op.reduce:
        unit = _unit(op, axis)
        places = [[d for d, row in enumerate(read.coefficients) if row[axis]] for read in op.reads]
        lone = all(len(p) == 1 and read.coefficients[p[0]] == unit for p, read in zip(places, op.reads, strict=True))
        if op.extents[axis] > 1 and lone and places[1][0] < len(filters.view) - 1:
            last = places[0][0] == len(pixels.view) - 1
            whole = op.extents[axis] % GROUPS[op.dtype] == 0 and (packs_pixels or not pixels.is_padded(op.extents))
            return axis if (whole if last else packs_pixels) else -1
    return -1


def _unit(op: Operator, axis: int) -> tuple[int, ...]:
    """Return the coefficients of a tensor's dimension that only `axis` indexes, with stride one: [A], one for each axis."""
    return tuple(int(a == axis) for a in range(len(op.axes)))


def group_dimension(access: Access, axis: int) -> int:
    """Return the first dimension of an access that the axis indexes."""
    return next(d for d, row in enumerate(access.coefficients) if row[axis])


def _read_along(op: Operator, axis: int) -> bool:
    return all(_moved_by(read, -1) == [axis] and not read.is_padded(op.extents) for read in op.reads)


def _moved_by(access: Access, dimension: int) -> list[int]:
    """Return the axes that index a dimension of an access, or [-1] if the coefficient of any of them is not one."""
    row = access.coefficients[dimension]
    moving = [a for a, c in enumerate(row) if c]
    return moving if all(row[a] == 1 for a in moving) else [-1]


def widened_tiles(tile: tuple[int, int, int], extent: int, group: int) -> tuple[int, int, int]:
    """Return the tile sizes (register, L1, task) of an axis whose lanes each hold a group of elements.

    The register tile is `group` times as long as `tile` says, and outer tiles are rounded up to multiples of inner tiles.
    """
    register = min(group * tile[0], -(-extent // group) * group)
    whole = -(-extent // register) * register
    l1 = min(-(-tile[1] // register) * register, whole)
    return register, l1, min(-(-tile[2] // l1) * l1, -(-extent // l1) * l1)


def grouped_tiles(tile: tuple[int, int, int], extent: int, group: int) -> tuple[int, int, int]:
    """Return the tile sizes (register, L1, task) of an axis of `extent` elements that are multiplied in groups.

    L1 and task tiles are rounded up to whole groups.
    """
    whole = -(-extent // group) * group
    register, l1, task = tile
    l1, task = (min(-(-size // group) * group, whole) for size in (l1, task))
    return min(register, extent), l1, max(l1, task)
