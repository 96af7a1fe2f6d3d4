"""Compiled rules for the options of a decision: how an option changes a program, and which options may be chosen."""

from __future__ import annotations

import numpy as np

from gensor_gym.env.writing.decisions import FIRST, KIND, LEVEL_OF, NUMBER, SIZE, START, STOP
from gensor_gym.env.writing.room import keeps_room
from gensor_gym.graph.compiled import compiled, lean
from gensor_gym.graph.coordinates import CHAIN
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS, ROW, TILE, VTHREAD


@lean
def put(row, fact, option, options):  # noqa: ANN001, ANN201
    """Write one option of a decision into a program's row.

    A tile is also written at all outer levels, where it is the minimum.
    """
    first = fact[FIRST]
    if fact[KIND] == NUMBER:
        row[first] = options[option, 0]
    elif fact[KIND] == SIZE:
        for level in range(fact[LEVEL_OF], MAX_LEVELS):
            row[first + level * MAX_AXES] = options[option, 0]
    else:
        for i in range(CHAIN):
            row[first + i * MAX_AXES] = options[option, i]


@lean
def goes(row, fact, option, options):  # noqa: ANN001, ANN201
    """Return whether an option fits the numbers that are written already.

    A tile must be a multiple of the next inner tile, and virtual threads must divide the register tile. All other options fit.
    """
    number = options[option, 0]
    if fact[KIND] == SIZE and fact[LEVEL_OF] > 0:
        return number % row[fact[FIRST] + (fact[LEVEL_OF] - 1) * MAX_AXES] == 0
    if fact[KIND] == NUMBER and VTHREAD <= fact[FIRST] < VTHREAD + MAX_AXES:
        return row[fact[FIRST] - VTHREAD + TILE] % number == 0
    return True


@lean
def fill_choices(row, fact, is_last, options, ints, sizes, masked, scratch, mask):  # noqa: ANN001, ANN201
    """Write the mask int8 [N] of the options that an agent may choose in a decision.

    These are the options that may still lead to a legal program, or at the last decision make one. If there is none, or if
    `masked` is 0, they are all options that `goes` accepts.
    """
    if not (masked and fill_room(row, fact, is_last, options, ints, sizes, scratch, mask) > 0):
        count = fact[STOP] - fact[START]
        for i in range(mask.shape[0]):
            mask[i] = i < count and goes(row, fact, fact[START] + i, options)


@lean
def fill_room(row, fact, is_last, options, ints, sizes, scratch, mask):  # noqa: ANN001, ANN201
    """Write the mask int8 [N] of the options that may still lead to a legal program, and return their number.

    At the last decision these are the options that make a legal program.
    """
    for i in range(ROW):
        scratch[i] = row[i]
    count, found = fact[STOP] - fact[START], 0
    for i in range(mask.shape[0]):
        mask[i] = 0
        if i < count and goes(row, fact, fact[START] + i, options):
            put(scratch, fact, fact[START] + i, options)
            if fits(scratch, ints) if is_last else keeps_room(scratch, fact, ints, sizes):
                mask[i] = 1
                found += 1
    return found


@compiled
def fill_kept(rows, fact, is_last, ints, sizes, found):  # noqa: ANN001, ANN201
    """Write into `found` bool [N] whether each of N partly written programs may still become legal.

    After the last decision (`is_last`), write whether the program is legal.
    """
    for b in range(rows.shape[0]):
        found[b] = fits(rows[b], ints) if is_last else keeps_room(rows[b], fact, ints, sizes)


@compiled
def fill_open(rows, fact, is_last, options, ints, sizes, masks):  # noqa: ANN001, ANN201
    """Write for each of N partly written programs the mask of the options that may still lead to a legal program.

    `masks` is int8 [N, C]; see `fill_room`.
    """
    scratch = np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        fill_room(rows[b], fact, is_last, options, ints, sizes, scratch, masks[b])
