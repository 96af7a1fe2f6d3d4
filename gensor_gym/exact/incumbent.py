"""A good program with which the exact search starts: the best of coordinate descents from random programs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.column_descent import descend
from gensor_gym.graph.coordinates import opened
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.tables.layout import KNOB


def incumbent(
    graph: ConstructionGraph, moving: Sequence[int], restarts: int = 12, seed: int = 0
) -> tuple[np.ndarray, float, int]:
    """Find a good program by coordinate descents, and return (row int32 [ROW], its seconds, number of model evaluations).

    The first descent begins at the unscheduled program, `restarts` others at random programs. The result is the same every time.
    Descents change the knobs in `moving`; all other knobs stay at their default.
    """
    rng, initial = np.random.default_rng(seed), graph.initial().row
    coordinates = graph.coordinates.moving(moving)
    rows = np.stack([initial, *(graph.random_schedule(rng).row for _ in range(restarts))])
    fixed = [KNOB + k for k in range(len(KNOBS)) if k not in moving]
    rows[:, fixed] = initial[fixed]
    rows = opened(rows, graph.tables.ints)
    rows = rows[graph.fits(rows)]
    best, seconds, evaluations = rows[0].copy(), np.inf, 0
    for row in rows:
        found = descend(row, coordinates, graph.tables)
        evaluations += found.evaluated
        graph.charge(found.evaluated, np.array([[found.evaluated, found.seconds]]))
        if found.seconds < seconds:
            best, seconds = row, found.seconds
    return best, seconds, evaluations
