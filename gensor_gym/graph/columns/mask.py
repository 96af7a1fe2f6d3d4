"""Which values of a program's columns are legal: whole chains of axes, and knobs. Compiled, for one row.

As of a primitive, a value is legal when it changes the program and the result fits; no second rulebook: every answer is one of
`rules.within`, asked about the limits that a value may break (`columns.limits`, `risks`), and of a size only once.
"""

from __future__ import annotations

from gensor_gym.graph.actions import STOP
from gensor_gym.graph.columns.limits import limits_of_chain, limits_of_level, limits_of_threads
from gensor_gym.graph.compiled import lean, outlined
from gensor_gym.graph.risks import setting_risks, uneven_risks
from gensor_gym.graph.rules import within
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS, ROW, TENSOR_CORE, TILE, VTHREAD
from gensor_gym.graph.tables.tables import IS_CPU, NUM_LEVELS, SIZE_START

END, NEXT, LADDER = 0, 1, 3
"""Places of what is known of a chain of tiles, all numbers within its column: where its values end; of the innermost tile and of
the two innermost ones, the first chain with another; of every level the place on the ladder."""
CHAIN_FACTS = LADDER + MAX_LEVELS


@outlined
def fill_column_mask(row, count, places, offsets, actions, values, bounds, chains, ints, sizes, scratch, known, mask):  # noqa: ANN001, ANN201
    """Write into `mask` int8 [N] which values of `count` columns are legal; `row` must be so, with all levels opened.

    Of columns: `places` int64 [C, CHAIN], `offsets` [C + 1] into `values` int32 [O, CHAIN] (`Coordinates.packed`), `actions` [C]
    the action of the first value, `bounds` [C + 1] into `chains` int32 [M, CHAIN_FACTS]. To work in: `scratch` int32 [ROW] and
    `known` int8 [MAX_LEVELS, at least the sizes of the longest ladder].
    """
    for action in range(mask.shape[0]):
        mask[action] = 0
    mask[STOP] = 1
    for i in range(ROW):
        scratch[i] = row[i]
    for column in range(count):
        place, at = places[column, 0], actions[column] - offsets[column]
        if place >= KNOB:
            _fill_knob(row, place, offsets[column], offsets[column + 1], at, values, ints, scratch, mask)
        else:
            _fill_axis(row, place - TILE, bounds[column], bounds[column + 1], offsets[column], at, values, chains, ints, sizes,
                       scratch, known, mask)  # fmt: skip


@lean
def _fill_knob(row, place, begin, end, at, values, ints, scratch, mask):  # noqa: ANN001, ANN202
    """Values begin..end-1 of the knob at a place; the action of a value is `at` + its number."""
    for option in range(begin, end):
        value = values[option, 0]
        if value != row[place]:
            risks = setting_risks(row, place, value)
            scratch[place] = value
            mask[at + option] = risks == 0 or within(scratch, ints, risks)
    scratch[place] = row[place]


@lean
def _fill_axis(row, axis, first, last, begin, at, values, chains, ints, sizes, scratch, known, mask):  # noqa: ANN001, ANN202
    """Chains first..last-1 of an axis, whose values begin at `begin`, ordered by tiles from the innermost outwards."""
    start, levels = ints[SIZE_START + axis], ints[NUM_LEVELS]
    uneven = _look_at_levels(row, axis, start, ints, sizes, scratch, known)
    threads, form, inner, full, chain = limits_of_threads(axis, ints), limits_of_chain(row, axis, ints), -1, last, first
    while chain < last:
        failing = 0
        while failing < levels and known[failing, chains[chain, LADDER + failing]] == 1:
            failing += 1
        if failing < levels:
            chain = _beyond(chain, failing + (uneven >> failing & 1), first, last, chains)
            continue
        if ints[IS_CPU] == 1:
            chain = _fill_run(chain, first, begin + at, chains, known[levels - 1], mask)
            continue
        if threads != 0 and inner != chains[chain, LADDER]:
            inner = chains[chain, LADDER]
            full = _too_many(axis, chain, first + chains[chain, NEXT], threads, chains, start, ints, sizes, scratch)
        if chain >= full:
            chain = first + chains[chain, NEXT]
            continue
        if form == 0 or _keeps(axis, chain, form, chains, start, ints, sizes, scratch):
            low = begin if chain == first else begin + chains[chain - 1, END]
            for value in range(low, begin + chains[chain, END]):
                mask[at + value] = row[TENSOR_CORE] == 0 or values[value, MAX_LEVELS] == 1
        chain += 1
    for level in range(MAX_LEVELS):
        scratch[TILE + level * MAX_AXES + axis] = row[TILE + level * MAX_AXES + axis]
    _leave_out_present(row, axis, first, last, begin, at, values, chains, mask)


@lean
def _fill_run(chain, first, at, chains, fitting, mask):  # noqa: ANN001, ANN202
    """On a CPU, where a chain has one value and limits read one level each: all from a chain on with other outermost tiles.

    `fitting` [sizes]: which of these fit. Returns the first chain that is none of them, or does not fit.
    """
    end = first + chains[chain, NEXT + 1]
    while chain < end and fitting[chains[chain, LADDER + 2]] == 1:
        mask[at + chains[chain, END] - 1] = 1
        chain += 1
    return chain


@lean
def _look_at_levels(row, axis, start, ints, sizes, scratch, known):  # noqa: ANN001, ANN202
    """Write into `known` of every level which sizes keep the limits that read its tile alone; uneven levels, as bits.

    Where a larger size takes more of everything, the largest that fits is found by bisection.
    """
    count, bits = ints[SIZE_START + axis + 1] - start, 0
    for level in range(ints[NUM_LEVELS]):
        limits = limits_of_level(row, axis, level, ints)
        fitting = count
        if limits & uneven_risks(row, axis, level, ints) != 0:
            bits |= 1 << level
            for i in range(count):
                known[level, i] = _size_fits(axis, level, sizes[start + i], limits, ints, scratch)
            continue
        low = 0
        while limits != 0 and low < fitting:
            middle = (low + fitting) // 2
            if _size_fits(axis, level, sizes[start + middle], limits, ints, scratch):
                low = middle + 1
            else:
                fitting = middle
        for i in range(count):
            known[level, i] = i < fitting
    return bits


@lean
def _size_fits(axis, level, size, limits, ints, scratch):  # noqa: ANN001, ANN202
    """Whether a tile keeps some limits; levels outside it copy it."""
    for outer in range(level, MAX_LEVELS):
        scratch[TILE + outer * MAX_AXES + axis] = size
    return within(scratch, ints, limits)


@lean
def _beyond(chain, kept, first, last, chains):  # noqa: ANN001, ANN202
    """The next chain that does not share so many of its innermost tiles."""
    if kept == 0:
        return last
    return chain + 1 if kept > 2 else first + chains[chain, NEXT + kept - 1]


@lean
def _too_many(axis, low, high, limits, chains, start, ints, sizes, scratch):  # noqa: ANN001, ANN202
    """The first of chains low..high-1, which share a register tile, with too many threads; `high` where none has."""
    while low < high:
        middle = (low + high) // 2
        if _keeps(axis, middle, limits, chains, start, ints, sizes, scratch):
            low = middle + 1
        else:
            high = middle
    return high


@lean
def _keeps(axis, chain, limits, chains, start, ints, sizes, scratch):  # noqa: ANN001, ANN202
    """Whether the program with a chain of tiles keeps some limits."""
    for level in range(MAX_LEVELS):
        scratch[TILE + level * MAX_AXES + axis] = sizes[start + chains[chain, LADDER + level]]
    return within(scratch, ints, limits)


@lean
def _leave_out_present(row, axis, first, last, begin, at, values, chains, mask):  # noqa: ANN001, ANN202
    """The value that the program has is none that changes it."""
    chain = first
    while chain < last:
        low = begin if chain == first else begin + chains[chain - 1, END]
        same = 0
        while same < MAX_LEVELS and values[low, same] == row[TILE + same * MAX_AXES + axis]:
            same += 1
        if same == MAX_LEVELS:
            for value in range(low, begin + chains[chain, END]):
                if values[value, MAX_LEVELS] == row[VTHREAD + axis]:
                    mask[at + value] = 0
            return
        chain = _beyond(chain, same + 1, first, last, chains)
