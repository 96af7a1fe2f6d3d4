"""A good program to begin with: coordinate descent over whole columns of schedules from seeded random programs. Compiled."""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.gpu import latency_gpu
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.graph.actions import KNOB_UP
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.enumeration import axis_choices, knob_choices
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.layout import KNOB, LEVEL, MAX_AXES, MAX_LEVELS, ROW, TILE, VTHREAD
from gensor_gym.graph.limits import fits_gpu
from gensor_gym.graph.tables import ALLOWED, NUM_LEVELS


def incumbent(graph: ConstructionGraph, restarts: int = 12, seed: int = 0) -> tuple[np.ndarray, float, int]:
    """(row int32 [ROW], its seconds, model evaluations) of the best of `restarts` descents; the same every time."""
    tables, rng = graph.tables, np.random.default_rng(seed)
    choices = axis_choices(tables.ints, tables.sizes)
    chains, offsets = np.concatenate(choices), np.cumsum([0, *map(len, choices)])
    moving = [k for k in range(len(KNOBS)) if tables.ints[ALLOWED + KNOB_UP + k]]
    knobs = np.array([(k, v) for k, values in zip(moving, knob_choices(tables.ints), strict=True) for v in values])
    rows = np.stack([graph.random_schedule(rng).row for _ in range(restarts)])
    rows[:, LEVEL] = tables.ints[NUM_LEVELS] - 1
    best, seconds, evaluations = rows[0].copy(), np.inf, 0
    for row in rows:
        reached, made = _descend(row, chains, offsets, knobs.reshape(-1, 2).astype(np.int64), tables.ints, tables.floats)
        evaluations += made
        if reached < seconds:
            best, seconds = row.copy(), float(reached)
    graph.charge(evaluations)
    return best, seconds, evaluations


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
                    seconds = latency_gpu(trial, ints, floats, terms)
                    if seconds < best:
                        best, gained = seconds, True
                        row[:] = trial
        for i in range(knobs.shape[0]):
            trial[:] = row
            trial[KNOB + knobs[i, 0]] = knobs[i, 1]
            if fits_gpu(trial, ints):
                evaluations += 1
                seconds = latency_gpu(trial, ints, floats, terms)
                if seconds < best:
                    best, gained = seconds, True
                    row[:] = trial
    return best, evaluations


assert ROW == KNOB + len(KNOBS)
