"""Bytes that generated C brings into each cache: its loop nest walked from the register tile outwards. Compiled.

A loop whose data fit a cache brings every line in once. Where they do not, a loop that moves a tensor brings all of it in
again, and a loop that does not move it does so once anything inside it, from where things still fitted, has moved the
tensor on. What fits whole stays from one call to the next (timing is warm). Between clearly fitting and clearly not, both
are mixed, since real caches have no sharp edge.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.cost.constants import RUN_BYTES
from gensor_gym.cost.cpu_copies import is_packed
from gensor_gym.cost.cpu_tiles import COLUMNS, ROWS, TASK, pixel_pitch
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.layout import MAX_AXES, MAX_DIMS, MAX_TENSORS, SPATIAL_SLOTS, TILE
from gensor_gym.graph.resources import CONVOLUTION, LOOP_ORDER
from gensor_gym.graph.tables import (
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
CACHES = 3
ROOMY, FULL = 0.6, 1.3
"""Data up to the first share of a cache stay in it, beyond the second they do not."""
CROWDED = 0.5
"""Share of the ways of L1 from which on rows side by side push each other out."""
WRITTEN = 2.0
"""A written line is fetched and written back."""
SIZE = 0
"""Places in the walk's array: tile by axis [A]; then by tensor bytes, occupied bytes [T], and by cache and tensor traffic
and the share that stands still [CACHES, T]."""
HELD = SIZE + MAX_AXES
OCCUPIED = HELD + MAX_TENSORS
TRAFFIC = OCCUPIED + MAX_TENSORS
STILL = TRAFFIC + CACHES * MAX_TENSORS
WALK = STILL + CACHES * MAX_TENSORS


@compiled
def cache_traffic(row, slot, ints, floats, walk):  # noqa: ANN001, ANN201
    """Bytes per thread into L1, L2 and from DRAM. `row` as `fill_effective` writes it; `walk` float64 [WALK] is scratch."""
    fused = row[CONVOLUTION] == 2
    for axis in range(MAX_AXES):
        walk[SIZE + axis] = row[TILE + axis] if axis < SPATIAL_SLOTS else row[TILE + MAX_AXES + axis]
    if fused:
        walk[SIZE + COLUMNS] = row[TILE + ROWS] * row[TILE + COLUMNS]
        walk[SIZE + ROWS] = 1.0
    tensors = ints[NUM_READS] + 1
    for t in range(tensors):
        _measure(row, t, ints, floats, walk)
        for c in range(CACHES):
            again = crowding(row, t, slot, ints) if c == 0 else 1.0
            walk[TRAFFIC + c * MAX_TENSORS + t] = walk[HELD + t] * again
            walk[STILL + c * MAX_TENSORS + t] = 1.0
    first = ints[FIRST_SPATIAL]
    vector_inside = row[LOOP_ORDER] == 1
    for level in range(1, TASK + 1):
        if vector_inside:
            _grow_to(row, slot, level, ints, floats, walk, fused)
        for axis in range(SPATIAL_SLOTS - 1, first - 1, -1):
            if level == TASK and vector_inside and axis == SPATIAL_SLOTS - 1:
                _grow_reduce(row, level, ints, floats, walk, fused)
            if axis != slot:
                _grow_to(row, axis, level, ints, floats, walk, fused)
        if not vector_inside:
            if level == TASK:
                _grow_reduce(row, level, ints, floats, walk, fused)
            _grow_to(row, slot, level, ints, floats, walk, fused)
    for axis in range(ints[END_REDUCE] - 1, SPATIAL_SLOTS - 1, -1):
        _grow(row, axis, float(ints[EXTENT + axis]), ints, floats, walk)
    _grow_tasks(row, slot, ints, floats, walk, fused)
    return _total(0, tensors, ints, walk), _total(1, tensors, ints, walk), _total(2, tensors, ints, walk)


@compiled
def crowding(row, tensor, slot, ints):  # noqa: ANN001, ANN201
    """How often lines of an unpacked read come into L1 where the rows of a register tile walk side by side along lines.

    Rows a multiple of a page apart are at the same place of L1, which has room for so many as it has pages.
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
    together = rows * min(pitch & -pitch, 4096) / 4096.0
    share = min(1.0, max(0.0, (together * 4096.0 / ints[L1_BYTES] - CROWDED) / (1.0 - CROWDED)))
    step = row[TILE + slot] if slot >= SPATIAL_SLOTS else 1
    return 1.0 + share * (max(2.0, LINE / (step * ints[ITEM + tensor])) - 1.0)


@compiled
def _grow_reduce(row, level, ints, floats, walk, fused):  # noqa: ANN001, ANN201
    """Loops over the L1 tiles of the reduction."""
    for axis in range(ints[END_REDUCE] - 1, SPATIAL_SLOTS - 1, -1):
        _grow_to(row, axis, level, ints, floats, walk, fused)


@compiled
def _grow_to(row, axis, level, ints, floats, walk, fused):  # noqa: ANN001, ANN201
    """The loop over an axis up to the tile of a level."""
    size = row[TILE + level * MAX_AXES + axis] * 1.0
    if fused and axis == ROWS:
        return
    if fused and axis == COLUMNS:
        size = row[TILE + level * MAX_AXES + ROWS] * (pixel_pitch(ints) if level == TASK else row[TILE + level * MAX_AXES + COLUMNS]) * 1.0
    _grow(row, axis, size, ints, floats, walk)


@compiled
def _grow_tasks(row, slot, ints, floats, walk, fused):  # noqa: ANN001, ANN201
    """Loops over task tiles, of which a thread has a run: its share of the outermost axis that there are several along."""
    first = ints[FIRST_SPATIAL]
    shared = 1.0 * ints[UNITS]
    for axis in range(first, SPATIAL_SLOTS):
        task = row[TILE + TASK * MAX_AXES + axis]
        if ints[EXTENT + axis] > task:
            outermost = axis
            break
    else:
        return
    for axis in range(SPATIAL_SLOTS - 1, outermost - 1, -1):
        size, place = float(ints[EXTENT + axis]), axis
        if fused and axis == COLUMNS:
            continue
        if axis == outermost:
            size = max(size / shared, 1.0 * row[TILE + TASK * MAX_AXES + axis])
        if fused and axis == ROWS:
            size, place = size * pixel_pitch(ints), COLUMNS
        _grow(row, place, size, ints, floats, walk)


@compiled
def _grow(row, axis, size, ints, floats, walk):  # noqa: ANN001, ANN201
    """One loop around what there is: the axis grows to `size`."""
    before = walk[SIZE + axis]
    if size <= before:
        return
    trips = size / before
    walk[SIZE + axis] = size
    tensors = ints[NUM_READS] + 1
    occupied = 0.0
    for t in range(tensors):
        if _moves(row, t, axis, ints):
            _measure(row, t, ints, floats, walk)
        occupied += walk[OCCUPIED + t]
    for c in range(CACHES):
        fits = _fitting(c, occupied, ints)
        for t in range(tensors):
            at, still = TRAFFIC + c * MAX_TENSORS + t, STILL + c * MAX_TENSORS + t
            if _moves(row, t, axis, ints):
                again = walk[at] * trips
                walk[at] = fits * min(walk[HELD + t], again) + (1.0 - fits) * again
                walk[still] *= fits
            else:
                again = walk[at] * (walk[still] + (1.0 - walk[still]) * trips)
                walk[at] = fits * walk[at] + (1.0 - fits) * again


@compiled
def _moves(row, tensor, axis, ints):  # noqa: ANN001, ANN201
    """Whether a tensor moves along an axis (rows and columns of pixels being one in a shifted product)."""
    if row[CONVOLUTION] == 2 and axis == COLUMNS:
        return tensor != 1
    return ints[STRIDE + tensor * MAX_AXES + axis] != 0


@compiled
def _fitting(cache, occupied, ints):  # noqa: ANN001, ANN201
    """How far data of that many bytes stay in a cache, from 0 to 1."""
    size = ints[L1_BYTES + cache] * 1.0
    if cache == 2:
        size = max(size, ints[L2_BYTES] * 1.0) / ints[UNITS]
    return min(1.0, max(0.0, (FULL - occupied / size) / (FULL - ROOMY)))


@compiled
def _measure(row, tensor, ints, floats, walk):  # noqa: ANN001, ANN201
    """Bytes that the present tiles touch of a tensor, in whole lines, and what they occupy of a cache."""
    dims = ints[NUM_DIMS + tensor]
    item = ints[ITEM + tensor] * 1.0
    rows, width = 1.0, 1.0
    for d in range(dims):
        reach = 1.0
        at = PAIRS + (tensor * MAX_DIMS + d) * PAIR_WIDTH
        for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
            axis = ints[pair]
            reach += ints[pair + 1] * (min(walk[SIZE + axis], 1.0 * ints[EXTENT + axis] if row[CONVOLUTION] != 2 or axis < ROWS or axis > COLUMNS else 1.0) - 1.0)
        if d == dims - 1:
            width = reach
        else:
            rows *= reach
    if row[CONVOLUTION] == 2 and tensor != 1:
        pixels = walk[SIZE + COLUMNS]
        pitch = 1.0 * pixel_pitch(ints)
        if tensor == 0 and ints[COPIED] == 1:
            at = PAIRS + (dims - 2) * PAIR_WIDTH
            lines = 1.0
            for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
                if ints[pair] >= SPATIAL_SLOTS:
                    lines = walk[SIZE + ints[pair]]
            if pixels > pitch:
                rows, width = rows / max(1.0, _height(dims, ints, walk)), pixels + (lines - 1.0) * pitch
            else:
                rows, width = rows / max(1.0, _height(dims, ints, walk)) * lines, pixels + width - 1.0
        else:
            width = pixels
        walk[HELD + tensor] = walk[OCCUPIED + tensor] = rows * width * item * (WRITTEN if tensor == ints[NUM_READS] else 1.0)
        return
    length = width * item
    if is_packed(row, tensor):
        walk[HELD + tensor] = walk[OCCUPIED + tensor] = rows * length
        return
    pitch = ints[VIEW + tensor * MAX_DIMS + dims - 1] * ints[ITEM + tensor]
    grain = pitch & -pitch
    if width < ints[VIEW + tensor * MAX_DIMS + dims - 1]:
        if pitch & 63:
            length += LINE - item
        else:
            length = (np.floor((length - item) / LINE) + 1.0) * LINE
        occupied = rows * max(length, 1.0 * min(grain, 4096)) if rows > 1.0 else length
    else:
        occupied = rows * length
    held = rows * (length + floats[RUN_BYTES])
    walk[OCCUPIED + tensor] = occupied
    walk[HELD + tensor] = held * WRITTEN if tensor == ints[NUM_READS] else held


@compiled
def _height(dims, ints, walk):  # noqa: ANN001, ANN201
    """What `_measure` counted for the rows of the image of a shifted product."""
    reach = 1.0
    at = PAIRS + (dims - 2) * PAIR_WIDTH
    for pair in range(at + 1, at + 1 + 2 * ints[at], 2):
        if ints[pair] >= SPATIAL_SLOTS:
            reach += ints[pair + 1] * (walk[SIZE + ints[pair]] - 1.0)
    return reach


@compiled
def _total(cache, tensors, ints, walk):  # noqa: ANN001, ANN201
    """Bytes into a cache, less what stayed there since the call before."""
    occupied = total = 0.0
    for t in range(tensors):
        occupied += walk[OCCUPIED + t]
        total += walk[TRAFFIC + cache * MAX_TENSORS + t]
    return total * (1.0 - _fitting(cache, occupied, ints))
