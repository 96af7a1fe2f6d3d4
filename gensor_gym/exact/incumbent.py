"""A good program to begin with: coordinate descents over whole columns of schedules from seeded random programs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.column_descent import ColumnChoices, descend
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.layout import KNOB, LEVEL
from gensor_gym.graph.tables import NUM_LEVELS


def incumbent(
    graph: ConstructionGraph, moving: Sequence[int], restarts: int = 12, seed: int = 0
) -> tuple[np.ndarray, float, int]:
    """(row int32 [ROW], its seconds, model evaluations) of the best of `restarts` descents; the same every time.

    Knobs in `moving` move, the others stay at their default.
    """
    rng, initial = np.random.default_rng(seed), graph.initial().row
    choices = ColumnChoices.of(graph.tables, list(moving))
    rows = np.stack([initial, *(graph.random_schedule(rng).row for _ in range(restarts))])
    fixed = [KNOB + k for k in range(len(KNOBS)) if k not in moving]
    rows[:, fixed] = initial[fixed]
    rows[:, LEVEL] = graph.tables.ints[NUM_LEVELS] - 1
    rows = rows[graph.fits(rows)]
    best, seconds, evaluations = rows[0].copy(), np.inf, 0
    for row in rows:
        reached, made = descend(row, choices, graph.tables)
        evaluations += made
        if reached < seconds:
            best, seconds = row.copy(), reached
    graph.charge(evaluations)
    return best, seconds, evaluations
