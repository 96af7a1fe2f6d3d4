"""Work of one register tile of generated C on a core: multiply-adds, loads, shuffles, and the overhead of a call. Compiled.

The functions follow `codegen.c.micro`: broadcasts, vectors, lanes two apart selected from two loads, lanes gathered one by one,
windows written out line by line, narrower tiles at the end of the vector axis, lanes combined after a reduction.
"""

from __future__ import annotations

from gensor_gym.cost.constants import (
    DECODE,
    DECODE_GROUPS,
    FOLD,
    GATHER_LANE,
    GUARDED,
    LOOP_OVERHEAD,
    MASKED,
    PAIR_LOADS,
    PAST_LINE,
    PREFETCHES,
    SPLIT_LOADS,
    UNGROUPED,
)
from gensor_gym.cost.cpu.copies import is_contiguous, is_packed
from gensor_gym.cost.cpu.groups import group_of
from gensor_gym.cost.cpu.matrix import CHAIN, groups_of_row, is_in_tiles
from gensor_gym.cost.cpu.tiles import ROWS, TASK, moves_back
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.resources import rows_of, vectors_along, vectors_of
from gensor_gym.graph.tables.geometry import power_value
from gensor_gym.graph.tables.layout import CONVOLUTION, MAX_AXES, MAX_DIMS, PACK_A, PREFETCH, SPATIAL_SLOTS, TILE, UNROLL
from gensor_gym.graph.tables.tables import (
    BODY,
    CLOCK,
    COEF,
    COPIED,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    GROUPED,
    ITEM,
    LANES,
    NUM_DIMS,
    NUM_READS,
    PADDED,
    PEAK,
    STRIDE,
    UNITS,
    VIEW,
)

LINE = 64.0
MAX_UNROLLED = 512
"""Limit on the vector multiply-adds of an unrolled loop body in generated C (`codegen.c.micro`)."""
LOADS_PER_CYCLE = 2.0
WIDENED = 2.0
"""Number of instructions that convert a vector of 16-bit floats when it is loaded: one widens, one shifts."""
FMA_CHAIN = 4.0
"""Cycles from one multiply-add to the next that depends on it (Skylake to Zen 5)."""


@lean
def mean_vectors(row, slot, ints):  # noqa: ANN001, ANN201
    """Return the average number of vectors in a row of accumulators, over all register tiles.

    Tiles at the end of the axis are narrower.
    """
    whole = vectors_along(row, ints) * 1.0
    if slot >= SPATIAL_SLOTS and group_of(row, slot, ints) == slot:
        return vectors_of(row[TILE + slot] // ints[GROUPED], ints) * 1.0
    if slot >= SPATIAL_SLOTS or row[CONVOLUTION] == 2:
        return whole
    width, extent, task = row[TILE + slot], ints[EXTENT + slot], row[TILE + TASK * MAX_AXES + slot]
    if extent <= width or extent % width == 0 or moves_back(row, slot, slot, ints):
        return whole
    lanes = ints[LANES]
    tiles, vectors = 0.0, 0.0
    rest = extent % task
    for size, count in ((min(task, extent), extent // task if extent > task else 1), (rest if extent > task else 0, 1)):
        full, part = size // width, size % width
        tiles += count * (full + (part > 0))
        vectors += count * (full * whole + min(whole, 1.0 * ((part + lanes - 1) // lanes)))
    return vectors / tiles


@lean
def unroll_of(row, axis, slot, budget, ints):  # noqa: ANN001, ANN201
    """Return how many steps of the loop over a reduce axis the generated code unrolls, at most `budget`."""
    wanted = power_value(row[UNROLL]) if axis == innermost(slot, ints) else 1
    steps = ints[EXTENT + axis]
    if axis == slot:
        steps = (steps + row[TILE + axis] - 1) // row[TILE + axis]
    else:
        wanted *= row[TILE + axis]
    return max(1, min(wanted, budget, steps))


@lean
def innermost(slot, ints):  # noqa: ANN001, ANN201
    """Return the reduce axis of the innermost loop: the vector axis if it is a reduce axis, else the last reduce axis."""
    return slot if slot >= SPATIAL_SLOTS else ints[END_REDUCE] - 1


@lean
def window_axes(row, slot, ints):  # noqa: ANN001, ANN201
    """Return (index of the operand with a window, outermost reduce axis whose loop is written out); (-1, 0) without a window."""
    if row[CONVOLUTION] == 2 or slot >= SPATIAL_SLOTS:
        return -1, 0
    read = -1
    for t in range(ints[NUM_READS]):
        if ints[STRIDE + t * MAX_AXES + slot] != 0 and slides(t, ints):
            read = t
            break
    if read < 0:
        return -1, 0
    first, long = ints[END_REDUCE], False
    budget = max(1, MAX_UNROLLED // (rows_of(row, slot, ints) * vectors_along(row, ints)))
    for axis in range(ints[END_REDUCE] - 1, SPATIAL_SLOTS - 1, -1):
        factor = unroll_of(row, axis, slot, budget, ints)
        extent = ints[EXTENT + axis]
        if factor < extent or row[TILE + MAX_AXES + axis] < extent:
            break
        budget = max(1, budget // factor)
        first, long = axis, long or extent > 1
    return (read, first) if long else (-1, 0)


@lean
def slides(tensor, ints):  # noqa: ANN001, ANN201
    """Whether a spatial and a reduce axis both index one dimension of an operand, as in a window that slides over an image."""
    for d in range(ints[NUM_DIMS + tensor]):
        at = COEF + (tensor * MAX_DIMS + d) * MAX_AXES
        spatial = reduce = False
        for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
            if ints[at + axis] != 0 and ints[EXTENT + axis] > 1:
                spatial = spatial or axis < SPATIAL_SLOTS
                reduce = reduce or axis >= SPATIAL_SLOTS
        if spatial and reduce:
            return True
    return False


@lean
def read_rows(row, tensor, slot, ints):  # noqa: ANN001, ANN201
    """Return for how many rows of the register tile an operand is read at different addresses."""
    rows = 1.0
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        fused = axis == slot or (row[CONVOLUTION] == 2 and axis == ROWS)
        if not fused and ints[STRIDE + tensor * MAX_AXES + axis] != 0:
            rows *= row[TILE + axis]
    return rows


@lean
def lane_loads(row, tensor, slot, vectors, ints, floats):  # noqa: ANN001, ANN201
    """Return how many slots of the load ports one row of an operand takes.

    The row is read by a broadcast, by vectors, by lanes two apart, or by lanes gathered one by one.
    """
    stride = ints[STRIDE + tensor * MAX_AXES + slot]
    if stride == 0:
        return 1.0
    if is_contiguous(row, tensor, slot, ints):
        return vectors * (1.0 + floats[SPLIT_LOADS] * split_share(row, tensor, slot, ints, floats))
    width = row[TILE + slot]
    if stride != 2 or ints[ITEM + tensor] != 4:
        return width * floats[GATHER_LANE]
    lanes, rest = ints[LANES], width % ints[LANES]
    pairs = width // lanes + (rest >> 3 & 1) + (rest >> 2 & 1)
    return pairs * floats[PAIR_LOADS] + (rest & 3) * floats[GATHER_LANE]


@lean
def split_share(row, tensor, slot, ints, floats):  # noqa: ANN001, ANN201
    """Return the share of an operand's contiguous vectors that straddle two cache lines.

    Vectors do if they do not start at the start of a line.
    """
    item = ints[ITEM + tensor]
    if row[TILE + slot] * item < LINE:
        return 0.0
    grain = row[TILE + slot] * item
    if row[CONVOLUTION] == 2 and tensor == 0 and ints[COPIED] == 1:
        grain = item
    elif not (is_packed(row, tensor) and slot < SPATIAL_SLOTS):
        grain |= ints[VIEW + tensor * MAX_DIMS + ints[NUM_DIMS + tensor] - 1] * item
        grain |= int(floats[PAST_LINE])
        if slides(tensor, ints):
            grain |= item
    grain &= -grain
    return 1.0 - grain / LINE if grain < LINE else 0.0


@lean
def edge_shares(row, tensor, slot, ints):  # noqa: ANN001, ANN201
    """Return two shares of register tiles: those that touch the padding of an unpacked operand, and those with masked lanes.

    If all register tiles start at the same position, the checks for padding are constants and cost nothing.
    """
    if ints[PADDED + tensor] == 0 or is_packed(row, tensor):
        return 0.0, 0.0
    inside, lanes = 1.0, 0.0
    for d in range(ints[NUM_DIMS + tensor]):
        at = COEF + (tensor * MAX_DIMS + d) * MAX_AXES
        window = False
        for axis in range(SPATIAL_SLOTS, ints[END_REDUCE]):
            window = window or (ints[at + axis] != 0 and ints[EXTENT + axis] > 1)
        for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
            tile = row[TILE + axis]
            if window and ints[at + axis] != 0 and tile < ints[EXTENT + axis]:
                count = (ints[EXTENT + axis] + tile - 1) // tile
                inside *= max(0.0, 1.0 - 2.0 / count)
                lanes = 1.0 if axis == slot else lanes
    return 1.0 - inside, lanes * (1.0 - inside)


@lean
def point_cycles(row, slot, vectors, ints, floats):  # noqa: ANN001, ANN201
    """Return the cycles of a register tile per reduction point, or per group of points: (FMA ports, loads and decoding)."""
    per_cycle = floats[PEAK] / (ints[UNITS] * floats[CLOCK] * 2.0 * ints[LANES])
    rows, group = rows_of(row, slot, ints) * 1.0, group_of(row, slot, ints)
    combined = rows * vectors
    window, first = window_axes(row, slot, ints)
    loads = guards = 0.0
    for t in range(ints[NUM_READS]):
        lines = read_rows(row, t, slot, ints)
        got = lines * lane_loads(row, t, slot, vectors, ints, floats)
        if t == window:
            got, lines, combined = _window(row, t, first, slot, vectors, ints, floats)
        loads += got
        if ints[PADDED + t] != 0 and not is_packed(row, t):
            edges, masks = edge_shares(row, t, slot, ints)
            guards += edges * lines * floats[GUARDED] + masks * got * floats[MASKED]
    if row[PREFETCH] > 0 and ints[END_REDUCE] > SPATIAL_SLOTS and window < 0:
        loads += floats[PREFETCHES] * _prefetched(row, slot, vectors, ints)
    unrolled = _unrolled(row, slot, rows * vectors, ints)
    fma = combined / per_cycle
    if ints[ITEM] == 2:
        if ints[GROUPED] == 2 and ints[BODY] == 0:  # a pair takes the time of a multiply-add of float32
            fma = 2.0 * fma
        if group < 0:
            combined += WIDENED * loads
        elif group != slot and row[CONVOLUTION] != 1:
            unrolled = max(1.0, unrolled / 2.0)
    elif ints[ITEM] == 1 and ints[BODY] == 0:
        if group == slot:  # every vector of the rows is made unsigned, and the vectors of the other operand are added up
            combined += combined + vectors
            fma = 4.0 * combined / per_cycle
        elif group >= 0:
            fma, unrolled = fma * 4.0, unrolled if row[CONVOLUTION] == 1 else max(1.0, unrolled / 4.0)
            combined += 0.0 if row[PACK_A] == 1 else rows
        else:
            fma *= floats[UNGROUPED]
    overhead = floats[LOOP_OVERHEAD] / unrolled
    width = floats[DECODE_GROUPS] if group >= 0 else floats[DECODE]
    issue = max(loads / LOADS_PER_CYCLE, (combined + loads + overhead + guards) / width)
    return fma, issue


@lean
def _unrolled(row, slot, combined, ints):  # noqa: ANN001, ANN201
    """Return how many reduction points one iteration of the unrolled loop computes.

    `combined` are the multiply-adds or additions of one point.
    """
    budget, unrolled = max(1, int(MAX_UNROLLED / max(1.0, combined))), 1.0
    for back in range(ints[END_REDUCE] - SPATIAL_SLOTS):
        axis = ints[END_REDUCE] - 1 - back
        factor = unroll_of(row, axis, slot, budget, ints)
        unrolled *= factor
        if factor < ints[EXTENT + axis]:
            break
        budget = max(1, budget // factor)
    return unrolled


@lean
def _window(row, tensor, first, slot, vectors, ints, floats):  # noqa: ANN001, ANN201
    """Return (loads, lines, multiply-adds or additions) per reduction point of a window written out from axis `first` on.

    A line of the input is loaded once for all rows of the register tile that read it; lanes two apart take two loads. Without a
    multiplication, rows also share the sum over a line.
    """
    points, lines, taps, rows = 1.0, 1.0, 1.0, 1.0
    for axis in range(first, ints[END_REDUCE]):
        points *= ints[EXTENT + axis]
    for d in range(ints[NUM_DIMS + tensor]):
        at = COEF + (tensor * MAX_DIMS + d) * MAX_AXES
        reach, steps = 1.0, 1.0
        for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
            if ints[at + axis] == 0 or axis == slot or SPATIAL_SLOTS <= axis < first:
                continue
            size = row[TILE + axis] if axis < SPATIAL_SLOTS else ints[EXTENT + axis]
            reach += ints[at + axis] * (size - 1.0)
            steps *= size
        if ints[at + slot] != 0:
            taps *= steps
        else:
            lines *= min(reach, steps)
    rows = read_rows(row, tensor, slot, ints)
    stride = ints[STRIDE + tensor * MAX_AXES + slot]
    one = lane_loads(row, tensor, slot, vectors, ints, floats)
    if stride == 2 and ints[ITEM + tensor] == 4 and row[TILE + slot] >= 4:
        one *= 0.5 * (taps + taps % 2) / taps
    loads = lines * taps * one / points
    combined = rows_of(row, slot, ints) * vectors
    if ints[NUM_READS] == 1 and taps > 1:
        return loads, lines / points, (lines * (taps - 1.0) + rows * points / taps) * vectors / points
    return loads, lines / points, combined


@lean
def _prefetched(row, slot, vectors, ints):  # noqa: ANN001, ANN201
    """Return the number of prefetches per reduction point: all vectors of one operand.

    Both the vector axis and the inner loop index this operand; if several operands qualify, the one with the most rows counts.
    """
    inner, most = innermost(slot, ints), 0.0
    for t in range(ints[NUM_READS]):
        moving = ints[STRIDE + t * MAX_AXES + slot] != 0 and ints[STRIDE + t * MAX_AXES + inner] != 0
        if moving:
            most = max(most, read_rows(row, t, slot, ints) * vectors)
    return most


@lean
def chain_cycles(row, slot, ints, floats):  # noqa: ANN001, ANN201
    """Return the cycles between two dependent operations on one accumulator; 0 without a reduction."""
    if ints[END_REDUCE] == SPATIAL_SLOTS:
        return 0.0
    if is_in_tiles(row, slot, ints, floats):
        return CHAIN / groups_of_row(row, ints)
    return FMA_CHAIN if ints[BODY] == 0 else FMA_CHAIN - 1.0


@lean
def fold_cycles(rows, vectors, ints, floats):  # noqa: ANN001, ANN201
    """Return the cycles to add up the lanes of all rows of accumulators.

    Rows form groups of a power of two, and each group takes a tree of shuffles.
    """
    lanes, left, total = ints[LANES], rows, 0.0
    while left > 0:
        size, halvings = 1, 0
        while size * 2 <= min(left, lanes):
            size *= 2
        rest = size
        while rest < lanes:
            rest *= 2
            halvings += 1
        total += (size - 1.0) + 2.0 * halvings + 2.0
        left -= size
    return floats[FOLD] * total + rows * (vectors - 1.0) / 2.0
