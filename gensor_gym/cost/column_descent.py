"""Coordinate descent on the model over whole columns of a schedule: all chains of an axis, all values of a knob. Compiled.

A column changes as a whole, so a descent leaves where walks by single primitives stay: a register tile of 16 rows becomes
one of 12 without taking down what is built on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.cost.cpu_caches import WALK
from gensor_gym.cost.model import latency_in
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.enumeration import axis_choices
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.layout import KNOB, MAX_AXES, MAX_LEVELS, ROW, TILE, VTHREAD
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables import KNOB_BITS, Tables

SEEN = 2 + NUM_TERMS
"""Numbers kept of a program that a descent evaluated: how many were tried before it, its seconds, the model's terms."""


@dataclass(frozen=True)
class ColumnChoices:
    """What the columns of a task's schedules may be."""

    chains: np.ndarray
    """int32 [C, L + 1]: tiles of every level and virtual threads, axis after axis."""
    offsets: np.ndarray
    """int64 [A + 1]: where the chains of each axis slot begin."""
    knobs: np.ndarray
    """int64 [V, 2]: (knob, index of a value), for every value of every knob that moves."""

    @classmethod
    def of(cls, tables: Tables, moving: list[int]) -> ColumnChoices:
        """The choices of a task; of the knobs those in `moving` move."""
        choices = axis_choices(tables.ints, tables.sizes)
        values = [(k, v) for k in moving for v in usable_values(tables, k)]
        offsets = np.cumsum([0, *map(len, choices)]).astype(np.int64)
        return cls(np.concatenate(choices), offsets, np.array(values, dtype=np.int64).reshape(-1, 2))


def usable_values(tables: Tables, knob: int) -> list[int]:
    """Indices of the values that the operator can use of a knob."""
    return [i for i in range(len(KNOBS[knob].values)) if int(tables.ints[KNOB_BITS + knob]) >> i & 1]


def descend(
    row: np.ndarray, choices: ColumnChoices, tables: Tables, gain: float = 1.0, seen: np.ndarray | None = None
) -> tuple[float, int]:
    """(seconds reached, programs evaluated) from `row` int32 [ROW], legal and with all levels opened, changed in place.

    A program is taken that is faster than the best so far times `gain`: with 1 any faster one. `seen` float64 [S, SEEN]
    receives the programs evaluated, in order; the descent ends where it is full.
    """
    kept = np.empty((0, SEEN)) if seen is None else seen
    seconds, evaluated = _descend(
        row, choices.chains, choices.offsets, choices.knobs, tables.ints, tables.floats, gain, kept
    )
    return float(seconds), int(evaluated)


@compiled
def _descend(row, chains, offsets, knobs, ints, floats, gain, seen):  # noqa: ANN001, ANN202
    """Set one axis, or one knob, after the other to the best it may be until nothing gains, in place."""
    terms, trial = np.zeros(NUM_TERMS), row.copy()  # a program without a resident block leaves them as they are
    tiles, walk = np.empty(ROW, dtype=np.int32), np.empty(WALK)
    best = latency_in(row, ints, floats, terms, tiles, walk)
    tried, evaluated, gained = 0, 1, True
    _keep(seen, 0, tried, best, terms)
    while gained:
        gained = False
        for column in range(MAX_AXES + knobs.shape[0]):
            trial[:] = row
            start, stop = (offsets[column], offsets[column + 1]) if column < MAX_AXES else (0, 1)
            for choice in range(start, stop):
                if column < MAX_AXES:
                    for level in range(MAX_LEVELS):
                        trial[TILE + level * MAX_AXES + column] = chains[choice, level]
                    trial[VTHREAD + column] = chains[choice, MAX_LEVELS]
                else:
                    trial[KNOB + knobs[column - MAX_AXES, 0]] = knobs[column - MAX_AXES, 1]
                tried += 1
                if not fits(trial, ints):
                    continue
                if seen.shape[0] > 0 and evaluated == seen.shape[0]:
                    return best, evaluated
                seconds = latency_in(trial, ints, floats, terms, tiles, walk)
                _keep(seen, evaluated, tried, seconds, terms)
                evaluated += 1
                if seconds < best * gain:
                    best, gained = seconds, True
                    row[:] = trial
    return best, evaluated


@compiled
def _keep(seen, at, tried, seconds, terms):  # noqa: ANN001, ANN202
    """Write down a program that was evaluated, if anything is kept."""
    if seen.shape[0] > 0:
        seen[at, 0], seen[at, 1] = tried, seconds
        seen[at, 2:] = terms
