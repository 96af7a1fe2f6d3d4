"""Feasibility of many partial programs, and of each of their options: masks for many rows at once."""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.writing.decisions import decisions_of, packed
from gensor_gym.env.writing.rules import fill_kept, fill_open


class Room:
    """A task that is written by columns: its decisions, and the options that stay feasible."""

    def __init__(self, graph: ConstructionGraph) -> None:
        """List the decisions; ValueError if there is none."""
        facts, self._options, _, _ = packed([decisions_of(graph, "columns")])
        self._facts = facts[0]
        self._ints, self._sizes = graph.tables.ints, graph.tables.sizes

    def kept(self, rows: np.ndarray, place: int) -> np.ndarray:
        """Feasible rows int32 [N, ROW], written up to decision `place` with it and else at the minimum; bool [N].

        At the last decision, the legal programs.
        """
        found = np.zeros(len(rows), dtype=np.bool_)
        fill_kept(rows, self._facts[place], place + 1 == len(self._facts), self._ints, self._sizes, found)
        return found

    def options(self, rows: np.ndarray, place: int, count: int) -> np.ndarray:
        """Feasible options, of `count`, of decision `place` in rows that are written up to it; bool [N, count]."""
        alone, inverse = np.unique(rows, axis=0, return_inverse=True)
        masks = np.zeros((len(alone), count), dtype=np.int8)
        last = place + 1 == len(self._facts)
        fill_open(alone, self._facts[place], last, self._options, self._ints, self._sizes, masks)
        found: np.ndarray = masks[inverse.reshape(-1)] > 0
        return found
