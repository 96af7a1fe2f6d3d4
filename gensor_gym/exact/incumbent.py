"""A good program to begin with: coordinate descent over whole columns of schedules from seeded random programs. Compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu import latency_gpu
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.enumeration import axis_choices
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, TILE, VTHREAD
from gensor_gym.graph.limits import fits_gpu
from gensor_gym.graph.tables import KNOB_BITS, NUM_LEVELS


def incumbent(
    graph: ConstructionGraph, moving: Sequence[int], restarts: int = 12, seed: int = 0
) -> tuple[np.ndarray, float, int]:
    """(row int32 [ROW], its seconds, model evaluations) of the best of `restarts` descents; the same every time.

    Knobs in `moving` move, the others stay at their default.
    """
    tables, rng, initial = graph.tables, np.random.default_rng(seed), graph.initial().row
    choices = axis_choices(tables.ints, tables.sizes)
    chains, offsets = np.concatenate(choices), np.cumsum([0, *map(len, choices)])
    knobs = np.array([(k, v) for k in moving for v in usable_values(graph, k)], dtype=np.int64).reshape(-1, 2)
    rows = np.stack([initial, *(graph.random_schedule(rng).row for _ in range(restarts))])
    fixed = [KNOB + k for k in range(len(KNOBS)) if k not in moving]
    rows[:, fixed] = initial[fixed]
    rows[:, LEVEL] = tables.ints[NUM_LEVELS] - 1
    rows = rows[graph.fits(rows)]
    best, seconds, evaluations = rows[0].copy(), np.inf, 0
    for row in rows:
        reached, made = _descend(row, chains, offsets, knobs, tables.ints, tables.floats)
        evaluations += made
        if reached < seconds:
            best, seconds = row.copy(), float(reached)
    graph.charge(evaluations)
    return best, seconds, evaluations


def usable_values(graph: ConstructionGraph, knob: int) -> list[int]:
    """Indices of the values that the operator can use of a knob."""
    return [i for i in range(len(KNOBS[knob].values)) if int(graph.tables.ints[KNOB_BITS + knob]) >> i & 1]


@compiled
def _descend(row, chains, offsets, knobs, ints, floats):  # noqa: ANN001, ANN202
    """Set one axis, or one knob, after the other to the best it may be until nothing gains, in place."""
    terms, trial = np.empty(NUM_TERMS), row.copy()
    best, evaluations, gained = latency_gpu(row, ints, floats, terms), 1, True
    while gained:
        gained = False
        for axis in range(MAX_AXES):
            trial[:] = row
            for c in range(offsets[axis], offsets[axis + 1]):
                for level in range(MAX_LEVELS):
                    trial[TILE + level * MAX_AXES + axis] = chains[c, level]
                trial[VTHREAD + axis] = chains[c, MAX_LEVELS]
                if fits_gpu(trial, ints):
                    evaluations += 1
                    seconds = _taken_if_better(trial, best, row, ints, floats, terms)
                    gained, best = gained or seconds < best, seconds
        for i in range(knobs.shape[0]):
            trial[:] = row
            trial[KNOB + knobs[i, 0]] = knobs[i, 1]
            if fits_gpu(trial, ints):
                evaluations += 1
                seconds = _taken_if_better(trial, best, row, ints, floats, terms)
                gained, best = gained or seconds < best, seconds
    return best, evaluations


@compiled
def _taken_if_better(trial, best, row, ints, floats, terms):  # noqa: ANN001, ANN202
    """The lower of `best` and the trial's seconds; `row` becomes a trial that is faster."""
    seconds = latency_gpu(trial, ints, floats, terms)
    if seconds < best:
        row[:] = trial
        return seconds
    return best
