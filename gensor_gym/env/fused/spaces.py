"""Tables of several fused operators in one array, so that one look-up steps episodes of many operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.gir.space.numbering import Numbering
from gensor_gym.gir.space.table import GirTable, legal_actions


class Spaces:
    """Tables of the spaces of K fused operators, concatenated so that one look-up serves many episodes.

    Every schedule has a number: its index in its own operator's space, counted from 0. The argument `task` int64 [B] says
    which operator each number belongs to.
    """

    def __init__(self, tables: Sequence[GirTable]) -> None:
        """Concatenate the tables of all operators. Their spaces must have the same name."""
        self.numbering = Numbering.stacked(table.numbering for table in tables)
        self.first = np.cumsum([0, *(len(table.legal) for table in tables[:-1])])
        self.legal = np.concatenate([table.legal for table in tables])
        self.terms = np.concatenate([table.terms for table in tables])
        self.primitives = tables[0].graph.primitives
        moved = [table.moved for table in tables if table.moved is not None]
        self.moved = np.concatenate(moved) if moved else None

    def numbers(self, task: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the indices int64 [B] of schedules in their spaces, from their encodings `rows` int32 [B, ROW]."""
        return self.numbering.take(task).numbers(rows)

    def rows(self, task: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the encodings int32 [B, ROW] of schedules, from their indices `numbers` int64 [B] in their spaces."""
        return self.numbering.take(task).rows(numbers)

    def after(self, task: np.ndarray, numbers: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Apply one legal action to each schedule, and return the indices int64 [B] of the resulting schedules."""
        return self.numbering.take(task).after(numbers, actions)

    def terms_of(self, task: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return each schedule's time by the model in seconds, float64 [B, 1 + terms]: the total, then each term."""
        return self.terms[self.first[task] + numbers]

    def masks(self, task: np.ndarray, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the masks of legal actions of B schedules, bool [B, NUM_ACTIONS].

        The schedules are given both by their indices int64 [B] and as rows.
        """
        first, after = self.first[task], self.numbering.take(task).successors(numbers, rows)
        return legal_actions(first + numbers, first[:, None] + after, self.primitives, self.legal, self.moved)
