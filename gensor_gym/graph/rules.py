"""Rules of the construction graph for one schedule, as plain loops over small integer arrays, compiled by Numba.

`apply` defines every primitive for every schedule. `fits` is the legality of a schedule. `transition` combines both: an action is
legal if the space has it, it changes the schedule, and the result fits. `fill_mask` gives the same answer for all actions of a
row at once, skipping only work with a known outcome. With NUMBA_DISABLE_JIT=1 the source runs as plain Python.
`tests/support/oracle.py` is an independent implementation.
"""

from __future__ import annotations

import numpy as np

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
from gensor_gym.graph.compiled import compiled, lean, outlined
from gensor_gym.graph.knobs.knob import EVERY
from gensor_gym.graph.knobs.tensor_cores import fragment_length
from gensor_gym.graph.limits import fits_cpu, fits_gpu
from gensor_gym.graph.risks import growth_risks, knob_risks, shrinking_risks
from gensor_gym.graph.tables.layout import (
    KNOB,
    LEVEL,
    MAX_AXES,
    MAX_LEVELS,
    NUM_KNOBS,
    ROW,
    SPATIAL_SLOTS,
    TENSOR_CORE,
    TILE,
    VTHREAD,
)
from gensor_gym.graph.tables.tables import (
    ALLOWED,
    END_REDUCE,
    EXTENT,
    FIRST_SPATIAL,
    FREE_KNOBS,
    IS_CPU,
    KNOB_BITS,
    NUM_LEVELS,
    SIZE_START,
)


@lean
def first_above(sizes, start, stop, current):  # noqa: ANN001, ANN201
    """Return the index of the first size above `current` in the ascending sizes[start:stop]; `stop` if no size is above.

    The loop counts over the whole range, which compiles to a few vector instructions; bisection would mispredict branches.
    """
    above = start
    for i in range(start, stop):
        above += sizes[i] <= current
    return above


@lean
def next_size(sizes, start, stop, current, base):  # noqa: ANN001, ANN201
    """Return the smallest size above `current` in sizes[start:stop] that is a multiple of `base`; `current` if no size is."""
    for i in range(first_above(sizes, start, stop, current), stop):
        if base == 1 or sizes[i] % base == 0:
            return sizes[i]
    return current


@lean
def previous_size(sizes, start, stop, current, base):  # noqa: ANN001, ANN201
    """Return the largest size below `current` in sizes[start:stop] that is a multiple of `base`; `current` if no size is."""
    for i in range(first_above(sizes, start, stop, current - 1) - 1, start - 1, -1):
        if base == 1 or sizes[i] % base == 0:
            return sizes[i]
    return current


@lean
def set_tile(row, axis, size):  # noqa: ANN001, ANN201
    """Set the tile of an axis at the level under construction, and at all levels outside it, which copy it."""
    for level in range(row[LEVEL], MAX_LEVELS):
        row[TILE + level * MAX_AXES + axis] = size


@lean
def tile_base(row, axis, ints):  # noqa: ANN001, ANN201
    """Return a number that must divide the tile of an axis at the level under construction.

    At level 0 it is the number of virtual threads or, on tensor cores, the length of the instruction's fragment. At other levels
    it is the tile one level further in.
    """
    level = row[LEVEL]
    if level > 0:
        return row[TILE + (level - 1) * MAX_AXES + axis]
    return row[VTHREAD + axis] if row[TENSOR_CORE] == 0 else fragment_length(row, axis, ints)


@lean
def move_tile(row, axis, upwards, ints, sizes):  # noqa: ANN001, ANN201
    """Apply `tile` (or `inverse_tile` unless `upwards`) to an axis in place; return whether the row changed.

    It sets the next size at the level under construction; outer levels copy it.
    """
    level, base = row[LEVEL], tile_base(row, axis, ints)
    current = row[TILE + level * MAX_AXES + axis]
    start, stop = ints[SIZE_START + axis], ints[SIZE_START + axis + 1]
    if upwards:
        size = next_size(sizes, start, stop, current, base)
    else:
        size = previous_size(sizes, start, stop, current, base)
    set_tile(row, axis, size)
    return size != current


@lean
def move_level(row, outwards, ints):  # noqa: ANN001, ANN201
    """Apply `cache` (or `inverse_cache` unless `outwards`) to `row` in place; return whether it changed.

    `cache` begins the next memory level. `inverse_cache` returns to the previous level, if the tiles of both levels are equal.
    """
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


@lean
def move_vthread(row, axis, upwards, ints):  # noqa: ANN001, ANN201
    """Apply `set_vthread` (or `inverse_vthread` unless `upwards`) to an axis in place; return whether the row changed.

    It takes the next divisor of the register tile as the number of virtual threads. It has no effect on a CPU and on reduce axes.
    """
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


@lean
def move_knob(row, knob, upwards, ints):  # noqa: ANN001, ANN201
    """Apply `raise` (or `lower` unless `upwards`) to a knob in place: set its next usable value.

    Return whether the row changed.
    """
    bits = ints[KNOB_BITS + knob]
    index = row[KNOB + knob] + (1 if upwards else -1)
    while 0 <= index < 16:
        if (bits >> index) & 1:
            row[KNOB + knob] = index
            return True
        index += 1 if upwards else -1
    return False


@lean
def apply(row, action, ints, sizes):  # noqa: ANN001, ANN201
    """Apply a primitive to the schedule `row` in place; return whether it changed. `stop` changes nothing."""
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


@lean
def within(row, ints, limits):  # noqa: ANN001, ANN201
    """Whether a program is within those hardware limits that the bits of the int `limits` name (see `graph.knobs.knob`)."""
    if ints[IS_CPU] == 1:
        return fits_cpu(row, ints, limits)
    return fits_gpu(row, ints, limits)


@outlined
def fits(row, ints):  # noqa: ANN001, ANN201
    """Whether a program is within all limits of the hardware."""
    return within(row, ints, EVERY)


@lean
def is_well_formed(row, ints, sizes):  # noqa: ANN001, ANN201
    """Whether a row is a valid schedule of the task, apart from the hardware's limits.

    Tiles must be sizes of their axes and multiples of inner tiles, levels outside the one under construction must copy its tile,
    and knobs must have usable values.
    """
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
    for knob in range(NUM_KNOBS):
        index = row[KNOB + knob]
        if index < 0 or index > 15 or (ints[KNOB_BITS + knob] >> index) & 1 == 0:
            return False
    return True


@outlined
def fill_mask(row, ints, sizes, scratch, mask):  # noqa: ANN001, ANN201
    """Write the mask of the actions that are legal at `row` into `mask`, int8 [N]. `scratch` [ROW] is working memory.

    `row` must be within the hardware's limits. So only limits that an action may break are checked; actions without an effect are
    not tried.
    """
    for i in range(ROW):
        scratch[i] = row[i]
    for action in range(NUM_ACTIONS):
        mask[action] = 0
    mask[STOP] = 1
    _mask_levels(row, ints, scratch, mask)
    for axis in range(ints[FIRST_SPATIAL], ints[END_REDUCE]):
        if ints[EXTENT + axis] > 1:
            _mask_tiles(row, axis, ints, sizes, scratch, mask)
            _mask_vthreads(row, axis, ints, mask)
    _mask_knobs(row, ints, scratch, mask)


@lean
def _mask_levels(row, ints, scratch, mask):  # noqa: ANN001, ANN201
    """Write the mask of `cache` and `inverse_cache`. No limit is checked, because they use no resources."""
    for action in (CACHE, UNCACHE):
        if ints[ALLOWED + action] == 1 and move_level(scratch, action == CACHE, ints):
            mask[action] = 1
            scratch[LEVEL] = row[LEVEL]


@lean
def _mask_tiles(row, axis, ints, sizes, scratch, mask):  # noqa: ANN001, ANN201
    """Write the mask of `tile` and `inverse_tile` along an axis.

    If no limit can be broken (`graph.risks`) and `tile_base` is itself a size, a smaller size exists and is not searched for.
    """
    level, base = row[LEVEL], tile_base(row, axis, ints)
    current = row[TILE + level * MAX_AXES + axis]
    start, stop = ints[SIZE_START + axis], ints[SIZE_START + axis + 1]
    if ints[ALLOWED + TILE_UP + axis] == 1:
        size = next_size(sizes, start, stop, current, base)
        if size != current:
            set_tile(scratch, axis, size)
            mask[TILE_UP + axis] = within(scratch, ints, growth_risks(row, axis, ints))
            set_tile(scratch, axis, current)
    if ints[ALLOWED + TILE_DOWN + axis] == 1 and current > base:
        risks = shrinking_risks(row, axis, ints)
        if risks == 0 and (level > 0 or base == 1):
            mask[TILE_DOWN + axis] = 1
            return
        size = previous_size(sizes, start, stop, current, base)
        if size != current:
            set_tile(scratch, axis, size)
            mask[TILE_DOWN + axis] = within(scratch, ints, risks)
            set_tile(scratch, axis, current)


@lean
def _mask_vthreads(row, axis, ints, mask):  # noqa: ANN001, ANN201
    """Write the mask of `set_vthread` and `inverse_vthread` along an axis.

    No limit is checked: virtual threads use no resources. Tensor cores have none. The largest divisor of the register tile is the
    tile itself, the smallest is 1.
    """
    if ints[IS_CPU] == 1 or axis >= SPATIAL_SLOTS or row[TENSOR_CORE] > 0:
        return
    mask[VTHREAD_UP + axis] = ints[ALLOWED + VTHREAD_UP + axis] == 1 and row[VTHREAD + axis] < row[TILE + axis]
    mask[VTHREAD_DOWN + axis] = ints[ALLOWED + VTHREAD_DOWN + axis] == 1 and row[VTHREAD + axis] > 1


@lean
def _mask_knobs(row, ints, scratch, mask):  # noqa: ANN001, ANN201
    """Write the mask of `raise` and `lower`: they are legal if a next value exists and breaks no limit."""
    for i in range(FREE_KNOBS + 1, FREE_KNOBS + 1 + ints[FREE_KNOBS]):
        knob = ints[i]
        bits, index = ints[KNOB_BITS + knob], row[KNOB + knob]
        if ints[ALLOWED + KNOB_UP + knob] == 1 and bits >> (index + 1) != 0:
            mask[KNOB_UP + knob] = _knob_fits(row, knob, True, ints, scratch)
        if ints[ALLOWED + KNOB_DOWN + knob] == 1 and bits & ((1 << index) - 1) != 0:
            mask[KNOB_DOWN + knob] = _knob_fits(row, knob, False, ints, scratch)


@lean
def _knob_fits(row, knob, upwards, ints, scratch):  # noqa: ANN001, ANN201
    """Whether the program with the next value of a knob is within the limits. That program is built only if needed."""
    risks = knob_risks(row, knob, upwards, ints)
    if risks == 0:
        return True
    move_knob(scratch, knob, upwards, ints)
    fitting = within(scratch, ints, risks)
    scratch[KNOB + knob] = row[KNOB + knob]
    return fitting


@lean
def transition(row, action, ints, sizes, scratch, result):  # noqa: ANN001, ANN201
    """Write the schedule that an action leads to into `result`, and return whether the action is legal.

    An illegal action leaves the schedule unchanged. `scratch` is not used.
    """
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
    """Write the masks of the actions that are legal at each row: rows int32 [B, ROW], masks int8 [B, N]."""
    scratch = np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        fill_mask(rows[b], ints, sizes, scratch, masks[b])


@compiled
def transitions(rows, actions, ints, sizes, results, legal):  # noqa: ANN001, ANN201
    """Write the schedule after one action per row into `results` int32 [B, ROW], and its legality into `legal` [B].

    `actions` is int64 [B], `legal` bool. An illegal action leaves its schedule unchanged.
    """
    scratch = np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        legal[b] = transition(rows[b], actions[b], ints, sizes, scratch, results[b])
