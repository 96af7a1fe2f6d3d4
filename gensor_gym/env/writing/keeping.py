"""Checks of many partly written programs at once: which can become legal, and with which options of the next decision."""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.writing.decisions import decisions_of, packed
from gensor_gym.env.writing.rules import fill_kept, fill_open


class Room:
    """Checks which partly written programs of a task can still become legal.

    Programs are written by columns: each decision sets a knob, or the tiles of all levels of an axis.
    """

    def __init__(self, graph: ConstructionGraph) -> None:
        """List the decisions of the task. ValueError if there is nothing to decide."""
        facts, self._options, _, _ = packed([decisions_of(graph, "columns")])
        self._facts = facts[0]
        self._ints, self._sizes = graph.tables.ints, graph.tables.sizes

    def kept(self, rows: np.ndarray, place: int) -> np.ndarray:
        """Return for each partly written program whether it may still become legal, bool [N].

        `rows` is int32 [N, ROW]. Decisions 0 to `place` are written in the rows; all other numbers are at their minimum. If
        `place` is the last decision, the result is whether the program is legal.
        """
        found = np.zeros(len(rows), dtype=np.bool_)
        fill_kept(rows, self._facts[place], place + 1 == len(self._facts), self._ints, self._sizes, found)
        return found

    def options(self, rows: np.ndarray, place: int, count: int) -> np.ndarray:
        """Return which of the first `count` options of decision `place` may still lead to a legal program, bool [N, count].

        `rows` is int32 [N, ROW], with the decisions before `place` written.
        """
        alone, inverse = np.unique(rows, axis=0, return_inverse=True)
        masks = np.zeros((len(alone), count), dtype=np.int8)
        last = place + 1 == len(self._facts)
        fill_open(alone, self._facts[place], last, self._options, self._ints, self._sizes, masks)
        found: np.ndarray = masks[inverse.reshape(-1)] > 0
        return found
