"""int8 products in groups of four: which kernels can use instructions that add four products to a 32-bit lane."""

from __future__ import annotations

from gensor_gym.operators.traits import is_product
from gensor_gym.operators.types import Access, Operator

GROUP = 4
"""Neighbouring elements of the reduction that one lane takes at a time."""
BIAS = "INT32_C(-2139062144)"
"""The byte 128 four times."""


def splat(word: str, width: int) -> str:
    """The word in every lane, in C."""
    return word if width == 1 else f"splat_{width}({word})"


def group_axis(op: Operator, vector: int, packs: list[bool]) -> int:
    """The reduce axis whose elements are taken in groups, or -1 if the product is computed element by element.

    It takes an int8 product of an operand that is the same for all lanes, with contiguous neighbours along the axis, and a packed
    one with contiguous lanes; and only that axis may be reduced. With lanes along the reduction it takes two operands in place.
    Both operands of a convolution are packed, and the axis is that of input channels, for any other reduce axes.
    """
    if op.dtype != "int8" or not is_product(op) or len(packs) < 2:
        return -1
    if vector in op.reduce:
        return vector if not any(packs) and _read_along(op, vector) else -1
    if not packs[1]:
        return -1
    if len(packs) > 1 and all(packs) and (channel := _channel_axis(op, vector)) >= 0:
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


def _channel_axis(op: Operator, vector: int) -> int:
    """The axis of a convolution's input channels where vectors run over its output channels, -1 if there is none."""
    pixels, filters = op.reads
    alone = [row for row in filters.coefficients if row[vector]] == [_unit(op, vector)]
    if not alone or any(row[vector] for row in pixels.coefficients) or filters.is_padded(op.extents):
        return -1
    for axis in op.reduce:
        unit = _unit(op, axis)
        places = [[d for d, row in enumerate(read.coefficients) if row[axis]] for read in op.reads]
        lone = all(len(p) == 1 and read.coefficients[p[0]] == unit for p, read in zip(places, op.reads, strict=True))
        if op.extents[axis] > 1 and lone and all(p[0] < len(r.view) - 1 for p, r in zip(places, op.reads, strict=True)):
            return axis
    return -1


def _unit(op: Operator, axis: int) -> tuple[int, ...]:
    """Coefficients of a dimension that only one axis moves, one by one."""
    return tuple(int(a == axis) for a in range(len(op.axes)))


def group_dimension(access: Access, axis: int) -> int:
    """The dimension that the axis of groups moves."""
    return next(d for d, row in enumerate(access.coefficients) if row[axis])


def _read_along(op: Operator, axis: int) -> bool:
    """Whether neighbours along an axis are neighbours in every read, none of them padding."""
    return all(_moved_by(read, -1) == [axis] and not read.is_padded(op.extents) for read in op.reads)


def _moved_by(access: Access, dimension: int) -> list[int]:
    """The axes that move the index along a dimension, [-1] where one moves it by more than one."""
    row = access.coefficients[dimension]
    moving = [a for a, c in enumerate(row) if c]
    return moving if all(row[a] == 1 for a in moving) else [-1]


def widened_tiles(tile: tuple[int, int, int], extent: int) -> tuple[int, int, int]:
    """Register, L1 and task tile of an axis whose lanes hold a group each: four times as long, outer ones multiples."""
    register = min(GROUP * tile[0], -(-extent // GROUP) * GROUP)
    whole = -(-extent // register) * register
    l1 = min(-(-tile[1] // register) * register, whole)
    return register, l1, min(-(-tile[2] // l1) * l1, -(-extent // l1) * l1)


def grouped_tiles(tile: tuple[int, int, int], extent: int) -> tuple[int, int, int]:
    """Register, L1 and task tile of the axis with whole groups in the outer two; `extent` elements in all."""
    whole = -(-extent // GROUP) * GROUP
    register, l1, task = tile
    l1, task = (min(-(-size // GROUP) * GROUP, whole) for size in (l1, task))
    return min(register, extent), l1, max(l1, task)
