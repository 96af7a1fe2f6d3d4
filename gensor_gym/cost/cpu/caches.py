"""Bytes that generated C loads into each cache. Compiled.

A walk over the loop nest, from the register tile outwards, finds them. A loop whose data fit a cache loads every line once.
If the data do not fit, a loop that indexes a tensor loads all of it again. So does a loop that does not index the tensor, if it
contains a loop whose data do not fit and that indexes the tensor. Data that fit entirely stay from one call to the next (timing
is warm). Between clearly fitting and clearly not fitting, both cases are interpolated, because real caches have no sharp edge.
"""

from __future__ import annotations

import math

from gensor_gym.cost.constants import RUN_BYTES
from gensor_gym.cost.cpu.copies import is_packed
from gensor_gym.cost.cpu.tiles import COLUMNS, ROWS, TASK, pixel_pitch
from gensor_gym.graph.compiled import lean
from gensor_gym.graph.tables.layout import CONVOLUTION, LOOP_ORDER, MAX_AXES, MAX_DIMS, MAX_TENSORS, SPATIAL_SLOTS, TILE
from gensor_gym.graph.tables.tables import (
    BYTES,
    COEF,
    COPIED,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    ITEM,
    L1_BYTES,
    L2_BYTES,
    L3_BYTES,
    NUM_DIMS,
    NUM_READS,
    PAIR_WIDTH,
    PAIRS,
    STRIDE,
    UNITS,
    VIEW,
)

LINE = 64.0
PAGE = 4096
"""Bytes between addresses that share a set of L1 (in most processors a way is a page)."""
ROOMY, FULL = 0.6, 1.3
"""Shares of a cache's size: data of at most the first share stay in the cache, data beyond the second do not."""
CROWDED = 0.5
"""Share of the ways of L1 from which on neighbouring rows evict each other."""
WRITTEN = 2.0
"""Transfers of a line that is written: it is fetched and written back."""

CACHES = 3
SIZE = 0  # [A] tile of every axis so far; SIZE and the indices below are entries of the walk's array
LENGTH = SIZE + MAX_AXES  # [T, D] box of every tensor
LINES = LENGTH + MAX_TENSORS * MAX_DIMS  # [T] rows of the box
ROOM = LINES + MAX_TENSORS  # [CACHES] bytes of a thread
CLOSED = ROOM + CACHES  # [T] 1 if the rows of a tensor are contiguous, because it is packed
GRAIN = CLOSED + MAX_TENSORS  # [T] largest power of two in the bytes from row to row, at most PAGE
WHOLE = GRAIN + MAX_TENSORS  # [T] bytes of a row of the tensor
HELD = WHOLE + MAX_TENSORS  # [T] bytes touched, in whole lines
OCCUPIED = HELD + MAX_TENSORS  # [T] bytes of a cache that the touched data take
TRAFFIC = OCCUPIED + MAX_TENSORS  # [CACHES, T] bytes brought in
STILL = TRAFFIC + CACHES * MAX_TENSORS  # [CACHES, T] 1 if all loops over the tensor so far fit the cache, less if some do not
PITCH = STILL + CACHES * MAX_TENSORS  # pixels from row to row in a shifted product, else 0
LEVELS = PITCH + 1  # number of caches that are modelled
WALK = LEVELS + 1


@lean
def cache_traffic(row, slot, ints, floats, walk):  # noqa: ANN001, ANN201
    """Compute the bytes that one thread moves: (into L1, into L2, from DRAM).

    `row` comes from `fill_effective`; `slot` is the vector axis; `walk` [WALK] is working memory.
    """
    _begin(row, slot, ints, floats, walk)
    vector_inside = row[LOOP_ORDER] == 1
    for level in range(1, TASK + 1):
        if vector_inside:
            _grow_to(row, slot, level, ints, floats, walk)
        if vector_inside and level == TASK:
            _grow_reduce(row, ints, floats, walk)
        for axis in range(SPATIAL_SLOTS - 1, ints[FIRST_SPATIAL] - 1, -1):
            if axis != slot:
                _grow_to(row, axis, level, ints, floats, walk)
        if not vector_inside:
            if level == TASK:
                _grow_reduce(row, ints, floats, walk)
            _grow_to(row, slot, level, ints, floats, walk)
    for axis in range(ints[END_REDUCE] - 1, SPATIAL_SLOTS - 1, -1):
        _grow(axis, 1.0 * ints[EXTENT + axis], ints, floats, walk)
    _grow_tasks(row, ints, floats, walk)
    beyond = _total(2, ints, walk) if walk[LEVELS] > 2.0 else 0.0
    return _total(0, ints, walk), _total(1, ints, walk), beyond


@lean
def _begin(row, slot, ints, floats, walk):  # noqa: ANN001, ANN201
    """Begin the walk through the caches with one call of the micro-kernel: a register tile over the L1 tile of the reduction."""
    fused = row[CONVOLUTION] == 2
    for axis in range(MAX_AXES):
        walk[SIZE + axis] = min(row[TILE + axis] if axis < SPATIAL_SLOTS else row[TILE + MAX_AXES + axis], ints[EXTENT + axis])
    walk[PITCH] = 0.0
    if fused:
        walk[PITCH] = pixel_pitch(ints)
        walk[SIZE + COLUMNS] = row[TILE + ROWS] * row[TILE + COLUMNS]
        walk[SIZE + ROWS] = 1.0
    last = max(1.0 * ints[L3_BYTES], 1.0 * ints[L2_BYTES]) / ints[UNITS]
    walk[ROOM], walk[ROOM + 1], walk[ROOM + 2] = ints[L1_BYTES], ints[L2_BYTES], last
    walk[LEVELS] = 2.0 if floats[BYTES] < 0.5 * ROOMY * last * ints[UNITS] else 3.0
    for t in range(ints[NUM_READS] + 1):
        last = ints[NUM_DIMS + t] - 1
        pitch = ints[VIEW + t * MAX_DIMS + last] * ints[ITEM + t]
        if fused and t != 1:
            pitch *= ints[VIEW + t * MAX_DIMS + last - 1]
        walk[CLOSED + t] = is_packed(row, t)
        walk[GRAIN + t] = min(pitch & -pitch, PAGE)
        walk[WHOLE + t] = pitch
        rows = 1.0
        for d in range(last + 1):
            reach, at = 1.0, PAIRS + (t * MAX_DIMS + d) * PAIR_WIDTH
            for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
                if not (fused and ints[pair] == COLUMNS):
                    reach += ints[pair + 1] * (walk[SIZE + ints[pair]] - 1.0)
            walk[LENGTH + t * MAX_DIMS + d] = reach
            if d < last:
                rows *= reach
        walk[LINES + t] = rows
        _weigh(t, ints, floats, walk)
        walk[TRAFFIC + t] = walk[HELD + t] * crowding(row, t, slot, ints)
        walk[TRAFFIC + MAX_TENSORS + t] = walk[TRAFFIC + 2 * MAX_TENSORS + t] = walk[HELD + t]
        walk[STILL + t] = walk[STILL + MAX_TENSORS + t] = walk[STILL + 2 * MAX_TENSORS + t] = 1.0


@lean
def crowding(row, tensor, slot, ints):  # noqa: ANN001, ANN201
    """Return how often a line of an unpacked operand is loaded into L1 while the rows of a register tile advance together.

    The result exceeds 1 if rows evict each other: rows a multiple of a page apart share a set of L1, which has one entry per way.
    """
    inner = slot if slot >= SPATIAL_SLOTS else ints[END_REDUCE] - 1
    if inner < SPATIAL_SLOTS or is_packed(row, tensor) or ints[STRIDE + tensor * MAX_AXES + inner] != 1:
        return 1.0
    rows, pitch = 1, 0
    for axis in range(ints[FIRST_SPATIAL], SPATIAL_SLOTS):
        stride = ints[STRIDE + tensor * MAX_AXES + axis]
        if stride > 1 and row[TILE + axis] > 1:
            rows *= row[TILE + axis]
            pitch |= stride * ints[ITEM + tensor]
    if rows == 1:
        return 1.0
    together = 1.0 * rows * min(pitch & -pitch, PAGE) / ints[L1_BYTES]
    share = min(1.0, max(0.0, (together - CROWDED) / (1.0 - CROWDED)))
    step = row[TILE + slot] if slot >= SPATIAL_SLOTS else 1
    return 1.0 + share * (max(2.0, LINE / (step * ints[ITEM + tensor])) - 1.0)


@lean
def _grow_reduce(row, ints, floats, walk):  # noqa: ANN001, ANN201
    for axis in range(ints[END_REDUCE] - 1, SPATIAL_SLOTS - 1, -1):
        _grow_to(row, axis, TASK, ints, floats, walk)


@lean
def _grow_to(row, axis, level, ints, floats, walk):  # noqa: ANN001, ANN201
    """Add the loop over an axis up to the tile of a memory level to the walk through the loop nest."""
    size = 1.0 * row[TILE + level * MAX_AXES + axis]
    if walk[PITCH] > 0.0 and axis == ROWS:
        return
    if walk[PITCH] > 0.0 and axis == COLUMNS:
        rows = row[TILE + level * MAX_AXES + ROWS]
        size = rows * (walk[PITCH] if level == TASK and ints[COPIED] == 1 else size)
    _grow(axis, size, ints, floats, walk)


@lean
def _grow_tasks(row, ints, floats, walk):  # noqa: ANN001, ANN201
    """Add the loops over task tiles to the walk through the loop nest.

    A thread has a contiguous share of the outermost axis with several tiles.
    """
    outermost = ints[FIRST_SPATIAL]
    while outermost < SPATIAL_SLOTS and ints[EXTENT + outermost] <= row[TILE + TASK * MAX_AXES + outermost]:
        outermost += 1
    if walk[PITCH] > 0.0:
        outermost = min(outermost, ROWS)
    for axis in range(SPATIAL_SLOTS - 1, outermost - 1, -1):
        size = 1.0 * ints[EXTENT + axis]
        if axis == outermost:
            size = max(size / ints[UNITS], 1.0 * row[TILE + TASK * MAX_AXES + axis])
        if walk[PITCH] == 0.0:
            _grow(axis, size, ints, floats, walk)
        elif axis != COLUMNS:
            fused = axis == ROWS
            _grow(COLUMNS if fused else axis, size * walk[PITCH] if fused else size, ints, floats, walk)


@lean
def _grow(axis, size, ints, floats, walk):  # noqa: ANN001, ANN201
    """Add one loop to the walk through the loop nest, over which the axis grows to `size`."""
    fused = walk[PITCH] > 0.0 and axis == COLUMNS
    if not fused:
        size = min(size, 1.0 * ints[EXTENT + axis])
    before = walk[SIZE + axis]
    if size <= before:
        return
    walk[SIZE + axis] = size
    tensors = ints[NUM_READS] + 1
    occupied, moved = 0.0, 0
    for t in range(tensors):
        if (t != 1) if fused else ints[STRIDE + t * MAX_AXES + axis] != 0:
            moved |= 1 << t
            if not fused:
                _stretch(t, axis, size - before, ints, walk)
            _weigh(t, ints, floats, walk)
        occupied += walk[OCCUPIED + t]
    for c in range(int(walk[LEVELS])):
        _bring_in(c, moved, size / before, _fitting(c, occupied, walk), tensors, walk)


@lean
def _bring_in(cache, moved, trips, fits, tensors, walk):  # noqa: ANN001, ANN201
    """Add the bytes that a loop of `trips` iterations moves into a cache. If it indexes tensor t, bit t of `moved` is 1."""
    for t in range(tensors):
        at = cache * MAX_TENSORS + t
        bytes_in, still = walk[TRAFFIC + at], walk[STILL + at]
        if moved >> t & 1:
            again = bytes_in * trips
            walk[TRAFFIC + at] = min(walk[HELD + t], again)
            if fits < 1.0:
                walk[TRAFFIC + at] = fits * walk[TRAFFIC + at] + (1.0 - fits) * again
                walk[STILL + at] = still * fits
        elif fits < 1.0 and still < 1.0:
            walk[TRAFFIC + at] = bytes_in * (1.0 + (1.0 - fits) * (1.0 - still) * (trips - 1.0))


@lean
def _fitting(cache, occupied, walk):  # noqa: ANN001, ANN201
    """Return to what degree data of `occupied` bytes stay in a cache, from 0 to 1."""
    room = walk[ROOM + cache]
    if occupied <= ROOMY * room:
        return 1.0
    return max(0.0, (FULL - occupied / room) / (FULL - ROOMY))


@lean
def _stretch(tensor, axis, more, ints, walk):  # noqa: ANN001, ANN201
    """Lengthen the box of a tensor that the loops so far touch, after an axis has grown by `more`."""
    last = ints[NUM_DIMS + tensor] - 1
    for d in range(last + 1):
        step = ints[COEF + (tensor * MAX_DIMS + d) * MAX_AXES + axis]
        if step != 0:
            at = LENGTH + tensor * MAX_DIMS + d
            length = walk[at]
            walk[at] = length + step * more
            if d < last:
                walk[LINES + tensor] *= walk[at] / length


@lean
def _weigh(tensor, ints, floats, walk):  # noqa: ANN001, ANN201
    """Write the bytes of a tensor that the loops so far touch, in whole lines, and the bytes they occupy in a cache."""
    last, item, rows = ints[NUM_DIMS + tensor] - 1, ints[ITEM + tensor], walk[LINES + tensor]
    length = walk[LENGTH + tensor * MAX_DIMS + last] * item
    pitch = walk[PITCH]
    if pitch > 0.0 and tensor != 1:
        pixels, lines = walk[SIZE + COLUMNS], walk[LENGTH + tensor * MAX_DIMS + last - 1]
        if pixels > pitch:  # lines of the window overlap
            rows, length = rows / lines, length + (pixels - 1.0 + (lines - 1.0) * pitch) * item
        else:
            length += (pixels - 1.0) * item
    occupied = rows * length
    held = occupied
    if walk[CLOSED + tensor] == 0.0:
        if length < walk[WHOLE + tensor]:
            grain = walk[GRAIN + tensor]
            length = length + LINE - item if grain < LINE else math.ceil(length / LINE) * LINE
            occupied = rows * max(length, grain) if rows > 1.0 else length
        held = rows * (length + floats[RUN_BYTES])
    walk[OCCUPIED + tensor] = occupied
    walk[HELD + tensor] = held * WRITTEN if tensor == ints[NUM_READS] else held


@lean
def _total(cache, ints, walk):  # noqa: ANN001, ANN201
    """Return the bytes moved into a cache, minus the bytes that stayed in it since the previous call."""
    occupied = total = 0.0
    for t in range(ints[NUM_READS] + 1):
        occupied += walk[OCCUPIED + t]
        total += walk[TRAFFIC + cache * MAX_TENSORS + t]
    return total * (1.0 - _fitting(cache, occupied, walk))
