"""Knob for the number of elements that a GPU thread copies at a time."""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.knob import SHARED, Knob
from gensor_gym.graph.structure import load_width
from gensor_gym.graph.tables.geometry import box_length, power_value
from gensor_gym.graph.tables.layout import CONVOLUTION, MAX_AXES, MAX_DIMS, TILE, VECTOR
from gensor_gym.graph.tables.tables import EXTENT, LOAD_WIDTH, NUM_DIMS, PADDED, PAIR_WIDTH, PAIRS, WINDOW

KNOBS = (
    Knob(
        place=VECTOR, name="vector", kind="gpu", values=(1, 2, 4),
        doc="1, 2, 4: elements a load at most; each read takes what its rows allow: aligned ones, or windows over rows of "
        "whole loads",
        cost="registers in flight; needs aligned rows",
        is_useful=lambda op, hardware, width: width <= max(load_width(op, read) for read in op.reads),
        raising=SHARED, of_operands=True,
    ),
)  # fmt: skip


@lean
def widest_copy(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the largest number that `copy_width` can return for an operand with any tiles."""
    return min(power_value(row[VECTOR]), ints[LOAD_WIDTH + tensor])


@lean
def copy_width(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return how many elements of an operand a thread copies into shared memory by one load, on CUDA cores.

    At most the value of knob `vector`, and 1 for unaligned rows. In a window it must divide the distances between rows of the
    tensor, between tiles, and between steps along every axis of a window's row. A gathered window (convolution = 3) has width 1.
    """
    width = widest_copy(row, tensor, ints)
    if width == 1 or ints[WINDOW + tensor] == 0:
        return width
    if row[CONVOLUTION] == 3:
        return 1
    at = PAIRS + (tensor * MAX_DIMS + ints[NUM_DIMS + tensor] - 1) * PAIR_WIDTH
    for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
        tile = row[TILE + MAX_AXES + ints[pair]]
        while tile < ints[EXTENT + ints[pair]] and tile * ints[pair + 1] % width != 0:
            width //= 2
    return width


@lean
def copied_length(row, tensor, dimension, ints):  # noqa: ANN001, ANN201
    """Return the length, along one dimension, of the box of a tensor that a block copies to shared memory.

    A row of a window is rounded up to whole copies; the first copy may begin before the row.
    """
    length = box_length(row, tensor, dimension, 1, ints)
    if dimension != ints[NUM_DIMS + tensor] - 1 or ints[WINDOW + tensor] == 0:
        return length
    width = copy_width(row, tensor, ints)
    if width == 1:
        return length
    lead = width - 1 if ints[PADDED + tensor] == 1 else 0
    return (length + lead + width - 1) // width * width
