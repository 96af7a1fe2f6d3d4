"""Copies of operands that generated C makes before it computes: which operands, how often, and the cycles. Compiled."""

from __future__ import annotations

from gensor_gym.cost.constants import PACK_ACROSS, PACK_BYTES, PACK_CALL, PACK_LINE, PACK_ROWS
from gensor_gym.cost.cpu.groups import is_last, is_vector_dimension
from gensor_gym.cost.cpu.tiles import TASK, serves_all, tiles_of
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.tables.geometry import box_length, footprint, reduce_steps
from gensor_gym.graph.tables.layout import CONVOLUTION, MAX_AXES, PACK_A, SPATIAL_SLOTS
from gensor_gym.graph.tables.tables import (
    COPIED,
    FROZEN_READ,
    GROUPED,
    ITEM,
    L2_BYTES,
    L3_BYTES,
    NUM_DIMS,
    NUM_READS,
    STRIDE,
    UNITS,
    WHOLE_BOX,
    WHOLE_ROW,
)


@lean
def is_packed(row, tensor):  # noqa: ANN001, ANN201
    """Whether generated code copies an operand into contiguous panels before it computes (packing)."""
    return tensor < 2 and row[PACK_A + tensor] == 1


@lean
def is_shared(row, tensor, ints):  # noqa: ANN001, ANN201
    """Whether one packed copy serves all tasks: they (or all calls) read the same elements, which fit in the last cache."""
    limit = ints[L3_BYTES] if ints[L3_BYTES] > 0 else 4 * ints[L2_BYTES]
    return serves_all(row, tensor, ints) and ints[WHOLE_BOX + tensor] * ints[ITEM + tensor] <= limit


@lean
def is_kept(row, tensor, ints):  # noqa: ANN001, ANN201
    """Whether the packed copy of an operand is made once for all calls, because the operand is constant."""
    return ints[FROZEN_READ + tensor] == 1 and is_shared(row, tensor, ints)


@lean
def pack_cycles(row, slot, ints, floats):  # noqa: ANN001, ANN201
    """Return the cycles that all threads together spend on packing operands at each call. `row` comes from `fill_effective`."""
    cycles = 0.0
    for t in range(min(2, ints[NUM_READS])):
        if not is_packed(row, t) or is_kept(row, t, ints):
            continue
        last = ints[NUM_DIMS + t] - 1
        if is_shared(row, t, ints):
            copies, box, width = 1.0, ints[WHOLE_BOX + t] * 1.0, ints[WHOLE_ROW + t]
        else:
            copies = tiles_of(row, TASK, ints) * reduce_steps(row, TASK, ints) * 1.0
            box, width = footprint(row, t, TASK, ints) * 1.0, box_length(row, t, last, TASK, ints)
        across = ints[STRIDE + t * MAX_AXES + slot] > 1  # lines of the tensor become columns, or every other element is left out
        pixels = row[CONVOLUTION] == 1 and is_last(t, SPATIAL_SLOTS, ints)
        if pixels:
            width = width * box_length(row, t, last - 1, TASK, ints)  # neighbours are copied with all their channels
            copies *= ints[UNITS] if is_shared(row, t, ints) else 1  # by one thread
        in_groups = ints[GROUPED] > 1 and not pixels
        along = floats[PACK_BYTES] if in_groups else floats[PACK_ROWS]
        element = floats[PACK_ACROSS] if across else along
        cycles += copies * (box * element + box / width * floats[PACK_LINE] + floats[PACK_CALL])
    return cycles


@lean
def shares(row, ints):  # noqa: ANN001, ANN201
    """Whether threads must synchronise once more, because they pack an operand that all tasks read."""
    for t in range(min(2, ints[NUM_READS])):
        if is_packed(row, t) and is_shared(row, t, ints) and not is_kept(row, t, ints):
            return True
    return False


@lean
def is_contiguous(row, tensor, slot, ints):  # noqa: ANN001, ANN201
    """Whether a CPU loads vectors of an operand from contiguous memory: of the tensor, of packed panels, or of a copied image."""
    stride = ints[STRIDE + tensor * MAX_AXES + slot]
    if stride == 1:
        return True
    if row[CONVOLUTION] == 2 and tensor == 0 and ints[COPIED] == 1:
        return True
    return is_packed(row, tensor) and is_vector_dimension(tensor, slot, ints)
