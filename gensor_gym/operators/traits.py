"""Properties of an operator, derived from its axes and accesses. Rules, model and generators use them, never its name."""

from __future__ import annotations

from gensor_gym.operators.loops import Access, Loops

WEIGHTS = 1
"""Index of the operand with the weights, which a kernel may pack once (`weights`)."""


def is_product(op: Loops) -> bool:
    """Whether the operator sums products of elements of two tensors, as a matrix product or a convolution does."""
    return op.body == "multiply_add" and len(op.reads) == 2


def has_window(op: Loops) -> bool:
    """Whether a spatial axis and a reduce axis both index one dimension of an input, as in windows over images."""
    return any(_moved_by(row, op.spatial) and _moved_by(row, op.reduce) for read in op.reads for row in read.coefficients)


Places = tuple[int, ...]
"""Type of a tuple with the place in memory of each of four dimensions, listed in the usual order."""


def convolution_places(op: Loops) -> tuple[Places, Places, Places] | None:
    """Return where a convolution's dimensions are in memory, or None if the operator is not a convolution.

    The result has three tuples: indices of the image's (n, c, h, w), the filters' (k, c, r, s) and the output's (n, k, p, q). An
    operator is a convolution here if one axis of the output and one axis of the window index the image's rows, and two such axes
    its columns, and every other index is a single axis, or one with an axis of groups. A depthwise convolution does not
    count, because its channels are not summed.
    """
    if not is_product(op) or len(op.reduce) != 3 or len(op.spatial) not in (4, 5):
        return None
    (n, *groups, k, p, q), (c, r, s) = op.spatial, op.reduce
    wanted = (
        (op.reads[0], [{n}, {*groups, c}, {p, r}, {q, s}]),
        (op.reads[1], [{*groups, k}, {c}, {r}, {s}]),
        (op.write, [{n}, {*groups, k}, {p}, {q}]),
    )
    found = []
    for access, sets in wanted:
        movers = _movers(access)
        if len(movers) != 4 or any(axes not in movers for axes in sets):
            return None
        found.append(tuple(movers.index(axes) for axes in sets))
    image, filters, output = found
    return image, filters, output


def is_convolution(op: Loops) -> bool:
    """Whether the operator is a convolution, with or without groups, whose dimensions are in the usual order in memory.

    Shifted matrix products on CPUs, and implicit ones on CUDA cores, support no other convolution.
    """
    return convolution_places(op) == ((0, 1, 2, 3),) * 3


def has_channel_lanes(op: Loops) -> bool:
    """Whether the operator is a convolution whose output channels the lanes of a CPU can run along.

    Its weights are in the usual order in memory. Its image and its result may have the channels last.
    """
    places, images = convolution_places(op), ((0, 1, 2, 3), (0, 3, 1, 2))
    return places is not None and places[1] == images[0] and places[0] in images and places[2] in images


def shares_lanes(op: Loops) -> bool:
    """Whether a product with a window is contiguous along its innermost spatial axis in both inputs and in the output.

    A depthwise convolution with channels last is, if its weights are in the order rskc.
    """
    inner = op.spatial[-1]
    return is_product(op) and has_window(op) and all(one.axis_strides()[inner] == 1 for one in (*op.reads, op.write))


def weights(op: Loops) -> Access | None:
    """Return the access to a layer's weights (gemm's B, a convolution's filters), or None if the operator has no weights.

    A batch of products has no weights, because every product has separate operands. A product with a vector has none either.
    """
    if not is_product(op) or not _own(op, 0) or not _own(op, 1):
        return None
    shared = [a for a in op.spatial if all(_moves(read, a) for read in op.reads)]
    return op.reads[WEIGHTS] if convolution_places(op) or not shared else None


def _own(op: Loops, number: int) -> list[int]:
    """Return the spatial axes, of any extent, that index only input `number`, and not the other of the two inputs."""
    one, other = op.reads[number], op.reads[1 - number]
    return [a for a in op.spatial if _moves(one, a) and not _moves(other, a)]


def _moves(read: Access, axis: int) -> bool:
    """Whether an axis indexes any dimension of an input."""
    return any(row[axis] for row in read.coefficients)


def _movers(access: Access) -> list[set[int]]:
    """Return the set of axes that index each dimension of an access."""
    return [{axis for axis, coefficient in enumerate(row) if coefficient} for row in access.coefficients]


def _moved_by(row: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether any of the axes indexes the dimension whose coefficients are `row`."""
    return any(row[a] for a in axes)
