"""Feasibility of many partial programs at once, and of the options of their next decision."""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.writing.decisions import decisions_of, packed
from gensor_gym.env.writing.rules import fill_kept, fill_open


class Room:
    """The decisions of a task that is written by columns. It checks whether partial programs and options are feasible."""

    def __init__(self, graph: ConstructionGraph) -> None:
        """List the decisions. ValueError if the task has no decision."""
        facts, self._options, _, _ = packed([decisions_of(graph, "columns")])
        self._facts = facts[0]
        self._ints, self._sizes = graph.tables.ints, graph.tables.sizes

    def kept(self, rows: np.ndarray, place: int) -> np.ndarray:
        """Whether each row is feasible, or legal if `place` is the last decision; bool [N].

        `rows` is int32 [N, ROW]. Decisions 0 to `place` are written in the rows; all other numbers are at their minimum.
        """
        found = np.zeros(len(rows), dtype=np.bool_)
        fill_kept(rows, self._facts[place], place + 1 == len(self._facts), self._ints, self._sizes, found)
        return found

    def options(self, rows: np.ndarray, place: int, count: int) -> np.ndarray:
        """Whether each of the `count` options of decision `place` is feasible in each row; bool [N, count].

        Decisions before `place` are written in the rows.
        """
        alone, inverse = np.unique(rows, axis=0, return_inverse=True)
        masks = np.zeros((len(alone), count), dtype=np.int8)
        last = place + 1 == len(self._facts)
        fill_open(alone, self._facts[place], last, self._options, self._ints, self._sizes, masks)
        found: np.ndarray = masks[inverse.reshape(-1)] > 0
        return found
