"""Cost of operands that go from global memory to registers, without shared memory. Compiled.

Every load of a thread that walks along a row touches a line of its own. The sector of one load serves the next loads while L1
keeps it, so L2 reads every byte about once. The cost is a look-up in L1 for each line of a load, and a wait for each batch of
loads that the unrolled loop issues together.
"""

from __future__ import annotations

import math

from gensor_gym.cost.gpu.lanes import contiguous_run, inner_tile, lanes_to_place, place
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.knobs.vector import widest_copy
from gensor_gym.graph.tables.geometry import box_width, footprint, fragment, power_value, reduce_product, spatial_product
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_DIMS, REDUCE_THREADS, SPATIAL_SLOTS, TILE, UNROLL, VECTOR
from gensor_gym.graph.tables.tables import COEF, END_REDUCE, FIRST_SPATIAL, ITEM, NUM_DIMS, NUM_READS, SHARED_UNIT, STAGED, STRIDE

LINE = 128
"""Bytes of a line of L1. A look-up of one line takes one cycle."""
SECTOR = 32
"""Bytes of the smallest transfer from global memory."""
LEAST_L1 = 28 * 1024
"""Bytes of L1 that remain beyond the largest shared memory of a multiprocessor: both share 256 KB, shared memory takes at most
228 KB."""
UNDER_WAY = 32
"""Largest number of 4-byte words that a thread's loads have in flight, because registers also contain accumulators."""
COMPILER_UNROLLS = 16
"""Number of iterations that the compiler unrolls by itself. Chosen on the recorded row sums (train)."""
HIT = 0.13
"""Latency of L1 divided by the latency of L2: 33 of 263 cycles (arXiv 2402.13499)."""


@lean
def l1_room(resident, shared, ints):  # noqa: ANN001, ANN201
    """Return the bytes of L1 that each resident block has in addition to its shared memory."""
    return max(0.0, (ints[SHARED_UNIT] + LEAST_L1) / resident - shared)


@lean
def reduced_axis(tensor, ints):  # noqa: ANN001, ANN201
    """Return the reduce axis along which a tensor is contiguous; -1 if there is none."""
    at = COEF + (tensor * MAX_DIMS + ints[NUM_DIMS + tensor] - 1) * MAX_AXES
    for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
        if ints[at + axis] == 1:
            return axis
    return -1


@lean
def load_words(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the number of elements in one load of a thread: along a row of the reduction, or along neighbouring outputs."""
    axis = reduced_axis(tensor, ints)
    run = row[TILE + axis] if axis >= 0 else contiguous_run(row, tensor, ints)
    width = widest_copy(row, tensor, ints)
    while run & (width - 1) != 0:  # until the width, a power of two, divides the run
        width >>= 1
    return width


@lean
def step_points(row, ints):  # noqa: ANN001, ANN201
    """Return how many reduction points (combinations of reduction indices) a thread computes in one step."""
    return math.ceil(reduce_product(row, 1, ints) / power_value(row[REDUCE_THREADS]))


@lean
def batch_points(row, ints):  # noqa: ANN001, ANN201
    """Return how many reduction points' loads a thread issues together: those of one iteration of the unrolled loop.

    If these are the whole step and no barrier ends it, the compiler unrolls the loop over steps by itself.
    """
    points = step_points(row, ints)
    batch = min(points, reduce_product(row, 0, ints) * power_value(row[UNROLL]))
    return batch * COMPILER_UNROLLS if batch == points and not is_anything_staged(ints) else batch


@lean
def is_anything_staged(ints):  # noqa: ANN001, ANN201
    """Whether some operand is copied to shared memory, so that barriers end every step."""
    for t in range(ints[NUM_READS]):
        if ints[STAGED + t] == 1:
            return True
    return False


@lean
def lines_of(row, tensor, words, ints):  # noqa: ANN001, ANN201
    """Return how many lines of L1 a warp touches by one load or store of `words` elements per thread.

    At least one line per 128 bytes.
    """
    item, lines = ints[ITEM + tensor], 1
    left, reach = lanes_to_place(row), words * item
    shared = min(32, power_value(row[REDUCE_THREADS]))
    axis = reduced_axis(tensor, ints)
    if row[REDUCE_THREADS] > 0 and axis >= 0:
        reach = shared * row[TILE + axis] * item
        lines = min(shared, max(1, reach // LINE))
    for axis in range(SPATIAL_SLOTS - 1, ints[FIRST_SPATIAL] - 1, -1):
        lanes, left = place(row, axis, left)
        if lanes > 1 and ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            step = ints[STRIDE + tensor * MAX_AXES + axis] * item
            if axis == SPATIAL_SLOTS - 1:  # along outer axes lanes are rows apart, for any number of elements each
                step *= inner_tile(row, axis)
            lines *= min(lanes, max(1, (step * (lanes - 1) + reach) // LINE))
    return lines


@lean
def store_lines(row, ints):  # noqa: ANN001, ANN201
    """Return the cycles of L1 in which a warp stores its part of the output: the number of lines, summed over its stores."""
    out, words = ints[NUM_READS], power_value(row[VECTOR])
    run = contiguous_run(row, out, ints)
    while run & (words - 1) != 0:  # until the width, a power of two, divides the run
        words >>= 1
    return spatial_product(row, 0, ints) / words * lines_of(row, out, words, ints)


@lean
def direct_loads(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the cost of a warp's loads, in one reduction step, of an operand that does not go through shared memory.

    The result is (cycles of L1, number of batches of loads that wait for memory one after another).
    """
    points, part = step_points(row, ints), fragment(row, tensor, ints)
    words, batch = load_words(row, tensor, ints), batch_points(row, ints)
    cycles = math.ceil(part * points / words) * lines_of(row, tensor, words, ints) * 1.0
    batches = points * max(1.0 / batch, part / UNDER_WAY)
    if reduced_axis(tensor, ints) < 0:
        return cycles, batches
    opened = min(1.0, batch * ints[ITEM + tensor] / SECTOR)  # share of the batches that touch a new sector: the others hit
    return cycles, batches * (opened + (1.0 - opened) * HIT)


@lean
def direct_waste(row, tensor, room, each, ints):  # noqa: ANN001, ANN201
    """Return the bytes requested from L2 for each element of an operand that does not go through shared memory.

    `each` is their number without L1; `room` bytes of L1 for the block reduce it.
    """
    item = ints[ITEM + tensor]
    if each <= item:
        return each
    rows = footprint(row, tensor, 1, ints) / box_width(row, tensor, 1, ints)
    return item + (each - item) * (1.0 - min(1.0, room / (rows * LINE)))


@lean
def direct_flying(row, tensor, ints):  # noqa: ANN001, ANN201
    """Return the bytes of an operand that a thread has in flight: the loads of an unrolled iteration, in whole sectors."""
    item = ints[ITEM + tensor]
    along = batch_points(row, ints) * item if reduced_axis(tensor, ints) < 0 else max(batch_points(row, ints) * item, SECTOR)
    return min(UNDER_WAY * 4.0, fragment(row, tensor, ints) * along * 1.0)
