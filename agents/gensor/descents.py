"""Descents by the model from the best programs of a search, like Gensor's walk at temperature zero."""

from __future__ import annotations

import numpy as np

from agents.core.ranking import REGISTER_TILE, best_of_each
from agents.core.workers import shared_out
from agents.gensor.walk import descents, improvements, new_trace
from gensor_gym.construction import ConstructionGraph

LIMIT = 112
"""Maximum number of steps of one descent."""


def descended(
    graph: ConstructionGraph,
    rows: np.ndarray,
    seconds: np.ndarray,
    count: int,
    limit: int = LIMIT,
    ints: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Descend by the model from the best program of each of the best `count` register tiles.

    Return the given programs [P, ROW] and their seconds [P], with the ends of the descents added. `ints` may replace the task's
    table of whole numbers, to forbid some moves.
    """
    ends = best_of_each(REGISTER_TILE, rows, seconds)[:count].copy()
    if not len(ends):
        return rows, seconds
    tables, reached = graph.tables, np.empty(len(ends))
    moves = tables.ints if ints is None else ints

    def descend(at: slice) -> tuple[int, np.ndarray]:
        trace = new_trace()
        return descents(ends[at], moves, tables.floats, tables.sizes, limit, graph.room(), reached[at], trace), trace

    for evaluations, trace in shared_out(descend, len(ends)):
        graph.charge(evaluations, improvements(trace))
    return np.concatenate([rows, ends]), np.concatenate([seconds, reached])
