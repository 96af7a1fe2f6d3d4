"""Properties of an operator, derived from its axes and accesses. Rules, model and generators use them, never its name."""

from __future__ import annotations

from gensor_gym.operators.loops import Access, Loops


def is_product(op: Loops) -> bool:
    """Whether the operator sums products of two reads."""
    return op.body == "multiply_add" and len(op.reads) == 2


def has_window(op: Loops) -> bool:
    """Whether a spatial axis and a reduce axis both index the same dimension of a read, as in windows over images."""
    return any(_moved_by(row, op.spatial) and _moved_by(row, op.reduce) for read in op.reads for row in read.coefficients)


def is_convolution(op: Loops) -> bool:
    """Whether the operator is a two-dimensional convolution for the generators, with or without groups.

    It has an image [n, channels, h, w], filters [channels, c, r, s] and an output [n, channels, p, q]. One axis of the output and
    one axis of the window index the image's rows, and two such axes its columns; every other index is a single axis. False for a
    depthwise convolution, because its channels are not summed.
    """
    if not is_product(op) or len(op.reduce) != 3 or len(op.spatial) not in (4, 5):
        return False
    (n, *groups, k, p, q), (c, r, s) = op.spatial, op.reduce
    return (
        _movers(op.reads[0]) == [{n}, {*groups, c}, {p, r}, {q, s}]
        and _movers(op.reads[1]) == [{*groups, k}, {c}, {r}, {s}]
        and _movers(op.write) == [{n}, {*groups, k}, {p}, {q}]
    )


def weights(op: Loops) -> Access | None:
    """The read that is a layer's weights, the same from call to call: gemm's B, a convolution's filters; else None.

    A batch of products has no weights, since every product has separate operands. A product with a vector has none either.
    """
    if not is_product(op) or not _own(op, 0) or not _own(op, 1):
        return None
    shared = [a for a in op.spatial if all(_moves(read, a) for read in op.reads)]
    return op.reads[1] if is_convolution(op) or not shared else None


def _own(op: Loops, number: int) -> list[int]:
    """Spatial axes, of any extent, that index only the read `number`, and not the other of the two reads."""
    one, other = op.reads[number], op.reads[1 - number]
    return [a for a in op.spatial if _moves(one, a) and not _moves(other, a)]


def _moves(read: Access, axis: int) -> bool:
    """Whether an axis indexes any dimension of a read."""
    return any(row[axis] for row in read.coefficients)


def _movers(access: Access) -> list[set[int]]:
    """For each dimension of an access, the axes that index it."""
    return [{axis for axis, coefficient in enumerate(row) if coefficient} for row in access.coefficients]


def _moved_by(row: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether any of the axes indexes the dimension whose coefficients are `row`."""
    return any(row[a] for a in axes)
