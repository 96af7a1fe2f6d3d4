"""Coordinate descent on the model, compiled: one column of a program after another gets its best value.

A column is a knob, or the tiles of all levels of an axis (`graph.coordinates`). It changes as a whole, so a descent can continue
where no single primitive makes the program faster. Setting a column to the best of its values at once, or to each faster value in
turn, gives the same result, because a value replaces the previous value completely. A descent ends after a whole sweep without a
gain, or as soon as every column has gained nothing since the last gain. Both rules give the same program; the second takes fewer
evaluations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gensor_gym.cost.model import latency, room
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.compiled import compiled, lean
from gensor_gym.graph.coordinates import Coordinates, set_column
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables.layout import ROW
from gensor_gym.graph.tables.tables import Tables

TRACED = 2 + NUM_TERMS
"""Number of entries that describe an evaluated program in a trace: number of programs tried before it, its seconds by the model,
the terms of that time."""


class Descent(NamedTuple):
    """Result of a coordinate descent: the time of the program reached, and counts of programs."""

    seconds: float
    """Seconds of the program reached."""
    evaluated: int
    """Number of legal programs that were evaluated, including the first."""
    tried: int
    """Number of programs that were generated, legal or not, including the first."""
    improvements: np.ndarray
    """For the first program and each faster one, float64 [N, 2]: number of programs tried up to it, and its seconds."""


def descend(
    row: np.ndarray,
    coordinates: Coordinates,
    tables: Tables,
    sweeps: bool = True,
    gain: float = 1.0,
    trace: np.ndarray | None = None,
) -> Descent:
    """Improve a program column by column (one knob, or all tiles of an axis) until no single column makes it faster.

    `row` int32 [ROW], with a tile for every level, is the first program and becomes the program reached. A program is taken if
    its seconds by the model are below `gain` times the best seconds so far: with 1 any faster program. With `sweeps` the descent
    ends after a whole sweep without a gain, else once each column has gained nothing since the last gain. `trace` float64 [S,
    TRACED] receives the legal programs evaluated, in order; the descent ends when it is full.
    """
    kept = np.empty((0, TRACED)) if trace is None else trace
    seconds, evaluated, tried, improved = _descend(
        row, *coordinates.packed, tables.ints, tables.floats, room(tables.ints), sweeps, gain, kept
    )
    return Descent(float(seconds), int(evaluated), int(tried), np.array(improved).reshape(-1, 2))


@compiled
def _descend(row, places, offsets, values, ints, floats, space, sweeps, gain, trace):  # noqa: ANN001, ANN202
    terms, trial = np.zeros(NUM_TERMS), row.copy()  # a program without a resident block leaves the terms unchanged
    tiles = np.empty(ROW, dtype=np.int32)
    best = latency(row, ints, floats, terms, tiles, space) if fits(row, ints) else np.inf
    tried, evaluated, improved = 1, 1, [1.0, best]
    _keep(trace, 0, tried, best, terms)
    columns, column, idle = places.shape[0], 0, 0
    while idle < columns or (sweeps and column > 0):
        _copy(row, trial)
        idle += 1
        for choice in range(offsets[column], offsets[column + 1]):
            set_column(trial, column, choice, places, values)
            tried += 1
            if not fits(trial, ints):
                continue
            if trace.shape[0] > 0 and evaluated == trace.shape[0]:
                return best, evaluated, tried, improved
            seconds = latency(trial, ints, floats, terms, tiles, space)
            _keep(trace, evaluated, tried, seconds, terms)
            evaluated += 1
            if seconds < best * gain:
                best, idle = seconds, 0
                _copy(trial, row)
                improved += [1.0 * tried, best]
        column = (column + 1) % columns
    return best, evaluated, tried, improved


@lean
def _copy(values, into):  # noqa: ANN001, ANN202
    """Copy `values` into another array by a loop, because for a slice Numba would compile broadcasting."""
    for i in range(values.shape[0]):
        into[i] = values[i]


@lean
def _keep(trace, at, tried, seconds, terms):  # noqa: ANN001, ANN202
    """Write an evaluated program into row `at` of the trace, unless the trace is empty."""
    if trace.shape[0] > 0:
        trace[at, 0], trace[at, 1] = tried - 1, seconds
        for t in range(NUM_TERMS):
            trace[at, 2 + t] = terms[t]
