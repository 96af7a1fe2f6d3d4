"""Counts the schedules that are exactly as fast as the optimum. Compiled.

Schedules that differ only in virtual threads and in the reduction's register tile form a class. The caller passes one program of
every class that contains an optimal schedule.
"""

from __future__ import annotations

import numpy as np

from gensor_gym.cost.gpu.gpu import latency_gpu
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.exact.descent import next_inner, next_vthreads
from gensor_gym.graph.actions import VTHREAD_UP
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables.layout import MAX_AXES, SPATIAL_SLOTS, TILE, VTHREAD
from gensor_gym.graph.tables.tables import ALLOWED, EXTENT


@compiled
def count_ties(classes, best, ints, floats, sizes):  # noqa: ANN001, ANN201
    """Count the legal schedules that take exactly `best` seconds.

    They have the tiles and knobs of one of the rows `classes` [N, ROW], and any virtual threads and register tile of the
    reduction.
    """
    terms, free, count = np.empty(NUM_TERMS), np.zeros(SPATIAL_SLOTS, dtype=np.bool_), 0
    for axis in range(SPATIAL_SLOTS):
        free[axis] = ints[ALLOWED + VTHREAD_UP + axis] == 1 and ints[EXTENT + axis] > 1
    for i in range(classes.shape[0]):
        row = classes[i].copy()
        for axis in range(SPATIAL_SLOTS):
            row[VTHREAD + axis] = 1
        for axis in range(SPATIAL_SLOTS, MAX_AXES):
            row[TILE + axis] = 1
        more = True
        while more:
            turning = fits(row, ints)
            while turning:
                if latency_gpu(row, ints, floats, terms) == best:
                    count += 1
                turning = next_vthreads(row, free)
            more = next_inner(row, ints, sizes)
    return count
