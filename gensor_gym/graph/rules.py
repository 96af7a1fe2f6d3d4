"""The rules for one schedule, as plain loops over small integer arrays, compiled by Numba.

`apply` is every primitive as a total function; `fits` is legality as a property of a schedule; `fill_mask` puts the two
together: an action is legal when the space has it, it changes the schedule, and the result fits. There is no second
rulebook. With NUMBA_DISABLE_JIT=1 the same text runs as plain Python; `tests/oracle.py` is an independent one.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.graph import resources
from gensor_gym.graph.actions import (
    CACHE,
    KNOB_DOWN,
    KNOB_UP,
    NUM_ACTIONS,
    STOP,
    TILE_DOWN,
    TILE_UP,
    UNCACHE,
    VTHREAD_DOWN,
    VTHREAD_UP,
)
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, ROW, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.graph.tables import ALLOWED, EXTENT, IS_CPU, KNOB_BITS, NUM_LEVELS, SIZE_START

_NUM_KNOBS = len(KNOBS)
FREE_KNOB = np.array([knob.name in ("vector", "raster", "loop_order", "prefetch") for knob in KNOBS])
"""Knobs that no limit of `graph.resources` depends on."""
KNOB_CHANGES = np.array([3 if knob.name in ("split_k", "pack_a", "pack_b", "thread_split") else 0 for knob in KNOBS])
"""3 for knobs that only the last conditions of the limits depend on, whatever the tiles."""


@compiled
def first_above(sizes, start, stop, current):  # noqa: ANN001, ANN201
    """Index of the first size above `current` in the ascending sizes[start:stop]; `stop` if there is none."""
    while start < stop:
        middle = (start + stop) >> 1
        if sizes[middle] > current:
            stop = middle
        else:
            start = middle + 1
    return start


@compiled
def next_size(sizes, start, stop, current, base):  # noqa: ANN001, ANN201
    """Smallest size above `current` in sizes[start:stop] that is a multiple of `base`; `current` if there is none."""
    for i in range(first_above(sizes, start, stop, current), stop):
        if base == 1 or sizes[i] % base == 0:
            return sizes[i]
    return current


@compiled
def previous_size(sizes, start, stop, current, base):  # noqa: ANN001, ANN201
    """Largest size below `current` in sizes[start:stop] that is a multiple of `base`; `current` if there is none."""
    for i in range(first_above(sizes, start, stop, current - 1) - 1, start - 1, -1):
        if base == 1 or sizes[i] % base == 0:
            return sizes[i]
    return current


@compiled
def move_tile(row, axis, upwards, ints, sizes):  # noqa: ANN001, ANN201
    """Tile / inverse_tile: one rung on one axis at the level under construction; levels outside it copy the tile.

    Sizes keep to multiples of the tile below (of the virtual threads at level 0). Returns whether the row changed.
    """
    level = row[LEVEL]
    base = row[VTHREAD + axis] if level == 0 else row[TILE + (level - 1) * MAX_AXES + axis]
    current = row[TILE + level * MAX_AXES + axis]
    start, stop = ints[SIZE_START + axis], ints[SIZE_START + axis + 1]
    if upwards:
        size = next_size(sizes, start, stop, current, base)
    else:
        size = previous_size(sizes, start, stop, current, base)
    for outer in range(level, MAX_LEVELS):
        row[TILE + outer * MAX_AXES + axis] = size
    return size != current


@compiled
def move_level(row, outwards, ints):  # noqa: ANN001, ANN201
    """Cache / inverse_cache: open the next memory level; close it while it is untouched."""
    level = row[LEVEL]
    if outwards:
        if level + 1 >= ints[NUM_LEVELS]:
            return False
        row[LEVEL] = level + 1
        return True
    if level == 0:
        return False
    for axis in range(MAX_AXES):
        if row[TILE + level * MAX_AXES + axis] != row[TILE + (level - 1) * MAX_AXES + axis]:
            return False
    row[LEVEL] = level - 1
    return True


@compiled
def move_vthread(row, axis, upwards, ints):  # noqa: ANN001, ANN201
    """set_vthread / inverse_vthread: the next divisor of the register tile. Inert on a CPU and on reduce axes."""
    if ints[IS_CPU] == 1 or axis >= SPATIAL_SLOTS:
        return False
    tile = row[TILE + axis]
    current = row[VTHREAD + axis]
    candidate = current + 1 if upwards else current - 1
    while 1 <= candidate <= tile:
        if tile % candidate == 0:
            row[VTHREAD + axis] = candidate
            return True
        candidate += 1 if upwards else -1
    return False


@compiled
def move_knob(row, knob, upwards, ints):  # noqa: ANN001, ANN201
    """Raise / lower: the next usable value of a knob."""
    bits = ints[KNOB_BITS + knob]
    index = row[KNOB + knob] + (1 if upwards else -1)
    while 0 <= index < 16:
        if (bits >> index) & 1:
            row[KNOB + knob] = index
            return True
        index += 1 if upwards else -1
    return False


@compiled
def apply(row, action, ints, sizes):  # noqa: ANN001, ANN201
    """Apply a primitive to `row` in place; returns whether it changed anything. `stop` changes nothing."""
    if TILE_UP <= action < CACHE:
        upwards = action < TILE_DOWN
        return move_tile(row, action - (TILE_UP if upwards else TILE_DOWN), upwards, ints, sizes)
    if action == CACHE or action == UNCACHE:
        return move_level(row, action == CACHE, ints)
    if VTHREAD_UP <= action < KNOB_UP:
        upwards = action < VTHREAD_DOWN
        return move_vthread(row, action - (VTHREAD_UP if upwards else VTHREAD_DOWN), upwards, ints)
    if KNOB_UP <= action < NUM_ACTIONS:
        upwards = action < KNOB_DOWN
        return move_knob(row, action - (KNOB_UP if upwards else KNOB_DOWN), upwards, ints)
    return False


@compiled
def fits(row, ints, changed=0):  # noqa: ANN001, ANN201
    """Whether the program's resources are within the hardware's limits (`changed` as in `resources.fits_cpu`)."""
    if ints[IS_CPU] == 1:
        return resources.fits_cpu(row, ints, changed)
    return resources.fits_gpu(row, ints, changed)


@compiled
def is_well_formed(row, ints, sizes):  # noqa: ANN001, ANN201
    """Whether the row is a node of the graph at all: ladders, multiples, closed levels, usable knobs."""
    level = row[LEVEL]
    if level < 0 or level >= ints[NUM_LEVELS]:
        return False
    for axis in range(MAX_AXES):
        base = row[VTHREAD + axis]
        if base < 1 or (base > 1 and (ints[IS_CPU] == 1 or axis >= SPATIAL_SLOTS)):
            return False
        for at in range(MAX_LEVELS):
            tile = row[TILE + at * MAX_AXES + axis]
            if tile < 1 or tile % base != 0 or (at > level and tile != base):
                return False
            on_ladder = False
            for i in range(ints[SIZE_START + axis], ints[SIZE_START + axis + 1]):
                on_ladder = on_ladder or sizes[i] == tile
            if not on_ladder:
                return False
            base = tile
    for knob in range(_NUM_KNOBS):
        index = row[KNOB + knob]
        if index < 0 or index > 15 or (ints[KNOB_BITS + knob] >> index) & 1 == 0:
            return False
    return True


@compiled
def fill_mask(row, ints, sizes, scratch, mask):  # noqa: ANN001, ANN201
    """Write the legal actions of `row` into `mask` [N] (int8); `scratch` is a row to work in. `row` itself must fit."""
    for i in range(ROW):
        scratch[i] = row[i]
    mask[STOP] = 1
    for action in range(1, NUM_ACTIONS):
        mask[action] = 0
        if ints[ALLOWED + action] == 0 or _is_inert(action, ints):
            continue
        if apply(scratch, action, ints, sizes):
            mask[action] = keeps_resources(row, action, ints) or fits(scratch, ints, lowest_change(row, action))
            _restore(scratch, row, action)


@compiled
def keeps_resources(row, action, ints):  # noqa: ANN001, ANN201
    """Whether the result of an action surely fits when `row` does, so that legality need not be computed: for speed only.

    Moves between levels and of virtual threads take nothing. A shorter outer tile holds less (but may leave reduction
    threads without work on a GPU, and a shorter register tile may need more vectors). Some knobs are free.
    """
    if action == CACHE or action == UNCACHE or VTHREAD_UP <= action < KNOB_UP:
        return True
    if TILE_DOWN <= action < CACHE:
        spatial = action - TILE_DOWN < SPATIAL_SLOTS
        return row[LEVEL] > 0 and (spatial or ints[IS_CPU] == 1)
    if action >= KNOB_UP:
        return FREE_KNOB[(action - KNOB_UP) % _NUM_KNOBS]
    return False


@compiled
def lowest_change(row, action):  # noqa: ANN001, ANN201
    """Lowest level whose part of the limits an action can touch: that of a tile; 0 for a knob, 3 for some."""
    if action < CACHE:
        return row[LEVEL]
    return KNOB_CHANGES[(action - KNOB_UP) % _NUM_KNOBS] if action >= KNOB_UP else 0


@compiled
def _is_inert(action, ints):  # noqa: ANN001, ANN201
    """Moves of an axis of extent 1 or of a knob with one usable value change nothing: skipped for speed only."""
    if action >= KNOB_UP:
        bits = ints[KNOB_BITS + (action - KNOB_UP) % _NUM_KNOBS]
        return bits & (bits - 1) == 0
    if TILE_UP <= action < CACHE:
        axis = (action - TILE_UP) % MAX_AXES
        return ints[EXTENT + axis] == 1
    if VTHREAD_UP <= action < KNOB_UP:
        axis = (action - VTHREAD_UP) % MAX_AXES
        return axis >= SPATIAL_SLOTS or ints[EXTENT + axis] == 1
    return False


@compiled
def _restore(scratch, row, action):  # noqa: ANN001, ANN201
    """Undo in `scratch` what `action` can have touched."""
    if TILE_UP <= action < CACHE:
        axis = (action - TILE_UP) % MAX_AXES
        for level in range(MAX_LEVELS):
            scratch[TILE + level * MAX_AXES + axis] = row[TILE + level * MAX_AXES + axis]
    elif action == CACHE or action == UNCACHE:
        scratch[LEVEL] = row[LEVEL]
    elif action < KNOB_UP:
        axis = (action - VTHREAD_UP) % MAX_AXES
        scratch[VTHREAD + axis] = row[VTHREAD + axis]
    else:
        knob = (action - KNOB_UP) % _NUM_KNOBS
        scratch[KNOB + knob] = row[KNOB + knob]


@compiled
def transition(row, action, ints, sizes, scratch, result):  # noqa: ANN001, ANN201
    """Write the successor into `result`; an illegal action leaves the schedule unchanged. Returns legality."""
    for i in range(ROW):
        result[i] = row[i]
    if action == STOP:
        return True
    if action < 0 or action >= NUM_ACTIONS or ints[ALLOWED + action] == 0:
        return False
    if not apply(result, action, ints, sizes):
        return False
    if not fits(result, ints):
        for i in range(ROW):
            result[i] = row[i]
        return False
    return True


@compiled
def fill_masks(rows, ints, sizes, masks):  # noqa: ANN001, ANN201
    """`fill_mask` of every row: rows int32 [B, ROW], masks int8 [B, N]."""
    scratch = np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        fill_mask(rows[b], ints, sizes, scratch, masks[b])


@compiled
def transitions(rows, actions, ints, sizes, results, legal):  # noqa: ANN001, ANN201
    """`transition` of every row: actions int64 [B], results int32 [B, ROW], legal bool [B]."""
    scratch = np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        legal[b] = transition(rows[b], actions[b], ints, sizes, scratch, results[b])
