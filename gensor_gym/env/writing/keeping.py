"""Which of many programs that are begun keep room, and which options each has: what masks say, for many rows at once. Compiled."""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.writing.decisions import decisions_of, packed
from gensor_gym.env.writing.room import keeps_room
from gensor_gym.env.writing.rules import fill_room
from gensor_gym.graph.compiled import compiled
from gensor_gym.graph.rules import fits
from gensor_gym.graph.tables.layout import ROW


class Room:
    """Of one task that is written by columns: its decisions, and what they leave open."""

    def __init__(self, graph: ConstructionGraph) -> None:
        """List the decisions; ValueError where there is none."""
        facts, self._options, _, _ = packed([decisions_of(graph, "columns")])
        self._facts = facts[0]
        self._ints, self._sizes = graph.tables.ints, graph.tables.sizes

    def kept(self, rows: np.ndarray, place: int) -> np.ndarray:
        """Which rows int32 [N, ROW] keep room, written up to decision `place` with it, else as small as can be; bool [N].

        Of the last decision, which are legal programs.
        """
        found = np.zeros(len(rows), dtype=np.bool_)
        _kept(rows, self._facts[place], place + 1 == len(self._facts), self._ints, self._sizes, found)
        return found

    def options(self, rows: np.ndarray, place: int, count: int) -> np.ndarray:
        """Which of the `count` options of decision `place` keep room in rows that are written up to it; bool [N, count]."""
        alone, inverse = np.unique(rows, axis=0, return_inverse=True)
        masks = np.zeros((len(alone), count), dtype=np.int8)
        last = place + 1 == len(self._facts)
        _open(alone, self._facts[place], last, self._options, self._ints, self._sizes, masks)
        found: np.ndarray = masks[inverse.reshape(-1)] > 0
        return found


@compiled
def _kept(rows, fact, is_last, ints, sizes, found):  # noqa: ANN001, ANN202
    """Fill `found`, bool [N]."""
    for b in range(rows.shape[0]):
        found[b] = fits(rows[b], ints) if is_last else keeps_room(rows[b], fact, ints, sizes)


@compiled
def _open(rows, fact, is_last, options, ints, sizes, masks):  # noqa: ANN001, ANN202
    """Fill `masks`, int8 [N, C]."""
    scratch = np.empty(ROW, dtype=np.int32)
    for b in range(rows.shape[0]):
        fill_room(rows[b], fact, is_last, options, ints, sizes, scratch, masks[b])
