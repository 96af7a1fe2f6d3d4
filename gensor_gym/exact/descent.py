"""Depth-first search for the fastest program: register tiles, block tiles, the reduction, virtual threads. Compiled.

A node of the search fixes one more tile. It is pruned if `exact.floor` shows that no descendant is faster than the best program
so far. The search does not branch on choices without influence on the model: virtual threads along axes that change no bank and
no sector, and the split of the reduction's register tile over its axes, because only the product matters. If the longest register
tile of the reduction is never slower, no other is tried.
"""

from __future__ import annotations

import math

import numpy as np

from gensor_gym.cost.gpu.gpu import latency_gpu
from gensor_gym.cost.gpu.lanes import lanes_along, run_axis
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.exact.floor import floor_seconds, most_padding
from gensor_gym.graph.actions import VTHREAD_UP
from gensor_gym.graph.compiled import compiled, lean
from gensor_gym.graph.resources import CODE_LIMIT_GPU, registers_of, threads_of
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables.geometry import has_windows, power_value, reduce_product, spatial_product
from gensor_gym.graph.tables.layout import (
    MAX_AXES,
    MAX_LEVELS,
    REDUCE_SLOTS,
    REDUCE_THREADS,
    ROW,
    SPATIAL_SLOTS,
    STAGES,
    TILE,
    UNROLL,
    VTHREAD,
)
from gensor_gym.graph.tables.tables import (
    ALLOWED,
    EXTENT,
    NUM_READS,
    REGS_THREAD,
    SIZE_START,
    STAGED,
    STRIDE,
    THREADS_BLOCK,
)

SLACK = 1.0 - 1e-9
"""Factor on lower bounds. It allows for rounding, because they are summed in another order than the model's time."""
CHOSEN, REGISTER, BLOCK, REDUCE, PRUNED, EVALUATED, TIES, LIMIT = range(8)
"""Indices of the search's counters: tiles fixed; register tiles, block tiles and reductions visited; nodes pruned; programs
evaluated; classes of best programs; and the limit. At most counts[LIMIT] block tiles and reductions together are visited."""
NUM_COUNTS = 8
CHOICE, SKIPPED, LAST = range(3)


@lean
def set_outer(row, axis, size):  # noqa: ANN001, ANN201
    """Set the block tile along an axis to `size`, and the levels outside it, which copy it."""
    for level in range(1, MAX_LEVELS):
        row[TILE + level * MAX_AXES + axis] = size


@lean
def is_bank_axis(row, tensor, axis, ints):  # noqa: ANN001, ANN201
    """Whether virtual threads along `axis` change which shared-memory banks a warp's loads of a tensor meet."""
    if ints[STAGED + tensor] == 0:
        return False
    for slot in range(SPATIAL_SLOTS - 1, axis - 1, -1):
        if ints[STRIDE + tensor * MAX_AXES + slot] != 0 and lanes_along(row, slot, ints) > 1:
            return slot == axis
    return False


@lean
def matters(row, axis, ints):  # noqa: ANN001, ANN201
    """Whether the number of virtual threads along a spatial axis can change the model's time of a program with these tiles."""
    if ints[ALLOWED + VTHREAD_UP + axis] == 0 or ints[EXTENT + axis] == 1 or row[TILE + axis] == 1:
        return False
    if axis == SPATIAL_SLOTS - 1:
        return True
    for tensor in range(ints[NUM_READS] + 1):
        if run_axis(row, tensor, ints) == axis:
            return True
        if tensor < ints[NUM_READS] and is_bank_axis(row, tensor, axis, ints):
            return True
    return False


@lean
def is_longest_best(row, ints):  # noqa: ANN001, ANN201
    """Whether a longer register tile of the reduction is never slower, so that shorter ones need no search.

    True if no threads share the reduction, knob `stages` has one of its first two values, no operand's last dimension is a
    window, and every operand is staged. With more points of a window in flight the model counts more registers
    (`graph.resources.registers_of`), and the width of an unstaged operand's loads depends on the tile's divisors.
    """
    for tensor in range(ints[NUM_READS]):
        if ints[STAGED + tensor] == 0:
            return False
    return row[REDUCE_THREADS] == 0 and row[STAGES] < 2 and not has_windows(ints)


@compiled
def next_vthreads(row, free):  # noqa: ANN001, ANN201
    """Set the next combination of virtual threads along the axes in `free`. After the last, set all to 1 and return False."""
    for axis in range(SPATIAL_SLOTS):
        if not free[axis]:
            continue
        value, tile = row[VTHREAD + axis] + 1, row[TILE + axis]
        while value < tile and tile % value != 0:
            value += 1
        if value <= tile:
            row[VTHREAD + axis] = value
            return True
        row[VTHREAD + axis] = 1
    return False


@compiled
def next_inner(row, ints, sizes):  # noqa: ANN001, ANN201
    """Set the next register tile of the reduction that divides its block tile. After the last, set it to 1 and return False."""
    for axis in range(SPATIAL_SLOTS, MAX_AXES):
        outer, tile = row[TILE + MAX_AXES + axis], row[TILE + axis]
        for i in range(ints[SIZE_START + axis], ints[SIZE_START + axis + 1]):
            if sizes[i] > tile and outer % sizes[i] == 0:
                row[TILE + axis] = sizes[i]
                return True
        row[TILE + axis] = 1
    return False


@compiled
def keep(row, seconds, best, best_row, ties, counts, first):  # noqa: ANN001, ANN201
    """Keep a program if it is faster than the best so far, or equally fast and the first of its class.

    A class is the set of programs that differ only in virtual threads and in the reduction's register tile. `first` says whether
    the class has no program in `ties` yet; its new value is returned. `ties` receives one program of each class.
    """
    if seconds < best[0]:
        best[0] = seconds
        best_row[:] = row
        counts[TIES] = 0
        first = True
    if first and seconds == best[0]:
        if counts[TIES] < ties.shape[0]:
            ties[counts[TIES]] = row
        counts[TIES] += 1
        return False
    return first


@compiled
def complete(row, inner, free, terms, ints, floats, sizes, best, best_row, ties, counts):  # noqa: ANN001, ANN201
    """Evaluate all programs with the tiles of `row`: only virtual threads and the reduction's register tile still vary."""
    longest, first = is_longest_best(row, ints), True
    for axis in range(SPATIAL_SLOTS, MAX_AXES):
        row[TILE + axis] = 1
    more = True
    while more:
        if (not longest or reduce_product(row, 0, ints) == inner) and fits(row, ints):
            turning = True
            while turning:
                counts[EVALUATED] += 1
                first = keep(row, latency_gpu(row, ints, floats, terms), best, best_row, ties, counts, first)
                turning = next_vthreads(row, free)
            if longest:
                break
        more = next_inner(row, ints, sizes)
    for axis in range(SPATIAL_SLOTS, MAX_AXES):
        row[TILE + axis] = 1


@compiled
def reductions(row, scratch, reduce, inner, free, terms, ints, floats, sizes, best, best_row, ties, counts, slack):  # noqa: ANN001, ANN201
    """Search the block tiles of the reduction, with all other tiles fixed, and keep the best program.

    `reduce` int64 [R, 3] are these tiles, and `inner` [R, CODE + 1] is the second array of `reduction_tiles`.
    """
    for axis in range(SPATIAL_SLOTS):
        free[axis] = matters(row, axis, ints)
    cap = CODE_LIMIT_GPU // (spatial_product(row, 0, ints) * power_value(row[UNROLL]))
    scratch[:] = row
    for r in range(reduce.shape[0]):
        for i in range(REDUCE_SLOTS):
            set_outer(scratch, SPATIAL_SLOTS + i, reduce[r, i])
        counts[REDUCE] += 1
        longest = inner[r, cap]
        if floor_seconds(scratch, 1, longest, ints, floats) * slack > best[0]:
            counts[PRUNED] += 1
            continue
        complete(scratch, longest, free, terms, ints, floats, sizes, best, best_row, ties, counts)


@compiled
def is_open(row, depth, padded, limit, most_threads, ints):  # noqa: ANN001, ANN201
    """Whether a partial program may have legal completions whose output, padding included, has at most `limit` elements.

    Tiles that are not fixed yet are 1.
    """
    if depth < SPATIAL_SLOTS:
        tile = spatial_product(row, 0, ints)
        return tile * power_value(row[UNROLL]) <= CODE_LIMIT_GPU and registers_of(row, ints) <= ints[REGS_THREAD]
    return padded[depth + 1] <= limit and threads_of(row, ints) <= most_threads


@compiled
def choose_size(row, depth, place, padded, ints, sizes, backwards):  # noqa: ANN001, ANN201
    """Set the next size of the tile that the search fixes at this depth.

    Return `CHOICE` if the size is set, `SKIPPED` if the register tile does not divide it. After the last size, reset the tile and
    return `LAST`. A block tile also sets `padded` [depth + 1].
    """
    outer = depth >= SPATIAL_SLOTS
    axis = depth - SPATIAL_SLOTS if outer else depth
    start, stop = ints[SIZE_START + axis], ints[SIZE_START + axis + 1]
    place[depth] += 1
    if place[depth] >= stop - start:
        place[depth] = -1
        if not outer:
            row[TILE + axis] = 1
        set_outer(row, axis, row[TILE + axis])
        return LAST
    size = sizes[stop - 1 - place[depth]] if backwards else sizes[start + place[depth]]
    if not outer:
        row[TILE + axis] = size
    elif size % row[TILE + axis] != 0:
        return SKIPPED
    set_outer(row, axis, size)
    if outer:
        extent = ints[EXTENT + axis]
        padded[depth + 1] = padded[depth] * ((extent + size - 1) // size * size / extent)
    return CHOICE


@compiled
def descend(row, reduce, inner, ints, floats, sizes, best, best_row, ties, counts, slack, backwards):  # noqa: ANN001, ANN201
    """Search all programs with the knobs of `row` depth first; update `best` [1], in seconds, and `best_row`.

    `ties` [N, ROW] receives one program of every class that has the best seconds. Lower bounds are multiplied by `slack`;
    `backwards` tries sizes from the largest down. Return whether the search finished within counts[LIMIT] nodes.
    """
    depths = 2 * SPATIAL_SLOTS
    place, padded = np.full(depths, -1, dtype=np.int64), np.ones(depths + 1)
    scratch, free = np.empty(ROW, dtype=np.int32), np.zeros(SPATIAL_SLOTS, dtype=np.bool_)
    terms = np.empty(NUM_TERMS)
    for i in range(SPATIAL_SLOTS):
        padded[SPATIAL_SLOTS] *= ints[EXTENT + i]
    depth, limit = 0, math.inf
    while depth >= 0:
        found = choose_size(row, depth, place, padded, ints, sizes, backwards)
        if found == LAST:
            depth -= 1
        if found != CHOICE:
            continue
        counts[CHOSEN] += 1
        if not is_open(row, depth, padded, limit, ints[THREADS_BLOCK], ints):
            continue
        if depth == SPATIAL_SLOTS - 1:
            counts[REGISTER] += 1
            limit = most_padding(row, best[0] / slack, ints, floats)
            if padded[SPATIAL_SLOTS] > limit:
                counts[PRUNED] += 1
                continue
        if depth < depths - 1:
            depth += 1
            continue
        counts[BLOCK] += 1
        if counts[BLOCK] + counts[REDUCE] > counts[LIMIT]:
            return False
        if floor_seconds(row, 0, 1, ints, floats) * slack > best[0]:
            counts[PRUNED] += 1
            continue
        reductions(row, scratch, reduce, inner, free, terms, ints, floats, sizes, best, best_row, ties, counts, slack)
    return True
