"""Which int8 and bfloat16 products generated C computes in groups of four or two, and along which axis. Compiled."""

from __future__ import annotations

from gensor_gym.graph.compiled import lean
from gensor_gym.graph.tables.layout import CONVOLUTION, MAX_AXES, MAX_DIMS, PACK_A, PACK_B, SPATIAL_SLOTS
from gensor_gym.graph.tables.tables import (
    BODY,
    COEF,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    GROUPED,
    NUM_DIMS,
    NUM_READS,
    PADDED,
    STRIDE,
)


@lean
def group_of(row, slot, ints):  # noqa: ANN001, ANN201
    """Return the reduce axis along which int8 or bfloat16 products are computed in groups of four or two; -1 without groups."""
    if ints[GROUPED] == 1 or ints[BODY] != 0 or ints[NUM_READS] < 2:
        return -1
    if row[CONVOLUTION] == 1:
        channels = is_vector_dimension(0, SPATIAL_SLOTS, ints) and is_vector_dimension(1, SPATIAL_SLOTS, ints)
        grouped = row[PACK_A] == 1
        if is_last(0, SPATIAL_SLOTS, ints):
            grouped = (grouped or ints[PADDED] == 0) and ints[EXTENT + SPATIAL_SLOTS] % ints[GROUPED] == 0
        grouped = grouped and row[PACK_B] == 1 and ints[EXTENT + SPATIAL_SLOTS] > 1 and not is_last(1, SPATIAL_SLOTS, ints)
        return SPATIAL_SLOTS if grouped and channels else -1
    if row[CONVOLUTION] != 0 or ints[PADDED] != 0 or ints[PADDED + 1] != 0:
        return -1
    if slot >= SPATIAL_SLOTS:
        return slot if row[PACK_A] == 0 and row[PACK_B] == 0 else -1
    longer, found = 0, -1
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        if ints[EXTENT + axis] > 1:
            longer, found = longer + 1, axis
    grouped = longer == 1 and row[PACK_B] == 1 and ints[STRIDE + slot] == 0 and ints[STRIDE + MAX_AXES + slot] == 1
    return found if grouped else -1


@lean
def is_last(tensor, slot, ints):  # noqa: ANN001, ANN201
    """Whether an axis indexes the innermost dimension of a tensor."""
    return ints[COEF + (tensor * MAX_DIMS + ints[NUM_DIMS + tensor] - 1) * MAX_AXES + slot] != 0


@lean
def is_vector_dimension(tensor, slot, ints):  # noqa: ANN001, ANN201
    """Whether the vector axis alone, with coefficient 1, indexes some dimension of the tensor, so that it packs into panels."""
    for d in range(ints[NUM_DIMS + tensor]):
        at = COEF + (tensor * MAX_DIMS + d) * MAX_AXES
        others = 0
        for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
            others += axis != slot and ints[at + axis] != 0
        if ints[at + slot] == 1 and others == 0:
            return True
    return False
