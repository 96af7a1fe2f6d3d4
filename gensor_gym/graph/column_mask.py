"""Which values of a program's columns are legal: whole chains of axes, and knobs. Compiled, for one row.

As of a primitive, a value is legal when it changes the program and the result fits; no second rulebook: every answer is one of
`rules.within`, asked about the limits that a value may break (`column_limits`, `risks`), and of a size only once.
"""

from __future__ import annotations

from gensor_gym.graph.actions import STOP
from gensor_gym.graph.column_limits import limits_of_chain, limits_of_level, limits_of_threads
from gensor_gym.graph.compiled import lean, outlined
from gensor_gym.graph.risks import setting_risks
from gensor_gym.graph.rules import within
from gensor_gym.graph.tables.layout import KNOB, MAX_AXES, MAX_LEVELS, ROW, TENSOR_CORE, TILE, VTHREAD
from gensor_gym.graph.tables.tables import NUM_LEVELS, SIZE_START

END, LADDER = 0, 1
"""Places of what is known of a chain of tiles: where its values end in the column; of every level the place on the ladder."""
CHAIN_FACTS = LADDER + MAX_LEVELS
UNKNOWN = -1


@outlined
def fill_column_mask(  # noqa: ANN201, D417
    row, count, places, offsets, actions, values, bounds, chains, ints, sizes, scratch, known, mask
):  # noqa: ANN001
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
    for level in range(levels):
        for i in range(ints[SIZE_START + axis + 1] - start):
            known[level, i] = UNKNOWN
    threads, form, full = limits_of_threads(axis, ints), limits_of_chain(row, axis, ints), -1
    low = begin
    for chain in range(first, last):
        high, inner = begin + chains[chain, END], chains[chain, LADDER]
        if inner != full and _levels_fit(row, axis, chain, chains, start, ints, sizes, scratch, known):
            _put(chain, axis, chains, start, sizes, scratch)
            if threads != 0 and not within(scratch, ints, threads):
                full = inner
            elif form == 0 or within(scratch, ints, form):
                _fill_values(row, axis, low, high, at, values, scratch, mask)
        low = high
    for level in range(MAX_LEVELS):
        scratch[TILE + level * MAX_AXES + axis] = row[TILE + level * MAX_AXES + axis]


@lean
def _levels_fit(row, axis, chain, chains, start, ints, sizes, scratch, known):  # noqa: ANN001, ANN202
    """Whether the tile of every level keeps the limits that read it alone; what was found is kept in `known`."""
    for level in range(ints[NUM_LEVELS]):
        i = chains[chain, LADDER + level]
        if known[level, i] == UNKNOWN:
            limits, place = limits_of_level(row, axis, level, ints), TILE + level * MAX_AXES + axis
            scratch[place] = sizes[start + i]
            known[level, i] = limits == 0 or within(scratch, ints, limits)
        if known[level, i] == 0:
            return False
    return True


@lean
def _put(chain, axis, chains, start, sizes, scratch):  # noqa: ANN001, ANN202
    """Write a chain of tiles."""
    for level in range(MAX_LEVELS):
        scratch[TILE + level * MAX_AXES + axis] = sizes[start + chains[chain, LADDER + level]]


@lean
def _fill_values(row, axis, low, high, at, values, scratch, mask):  # noqa: ANN001, ANN202
    """All values low..high-1 of a legal chain are legal, but the present one; on tensor cores those without virtual threads."""
    present = True
    for level in range(MAX_LEVELS):
        place = TILE + level * MAX_AXES + axis
        present = present and scratch[place] == row[place]
    for value in range(low, high):
        virtual = values[value, MAX_LEVELS]
        if row[TENSOR_CORE] == 0 or virtual == 1:
            mask[at + value] = not (present and virtual == row[VTHREAD + axis])
