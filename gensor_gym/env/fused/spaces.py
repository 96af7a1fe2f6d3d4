"""Concatenated tables of several fused operators: one look-up steps episodes of many tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.gir.space.numbering import Numbering
from gensor_gym.gir.space.table import GirTable, legal_actions


class Spaces:
    """Spaces of K tasks. A schedule is its index in its own space, counted from 0; `task` int64 [B] selects the space."""

    def __init__(self, tables: Sequence[GirTable]) -> None:
        """Concatenate the tables of all tasks, whose spaces have the same name."""
        self.numbering = Numbering.stacked(table.numbering for table in tables)
        self.first = np.cumsum([0, *(len(table.legal) for table in tables[:-1])])
        self.legal = np.concatenate([table.legal for table in tables])
        self.terms = np.concatenate([table.terms for table in tables])
        self.primitives = tables[0].graph.primitives
        moved = [table.moved for table in tables if table.moved is not None]
        self.moved = np.concatenate(moved) if moved else None

    def numbers(self, task: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Indices int64 [B] of rows int32 [B, ROW]."""
        return self.numbering.take(task).numbers(rows)

    def rows(self, task: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Rows int32 [B, ROW] of indices int64 [B]."""
        return self.numbering.take(task).rows(numbers)

    def after(self, task: np.ndarray, numbers: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Indices int64 [B] of the schedules after legal actions int64 [B]."""
        return self.numbering.take(task).after(numbers, actions)

    def terms_of(self, task: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The model's seconds of each schedule, float64 [B, 1 + terms]: total first, then the terms."""
        return self.terms[self.first[task] + numbers]

    def masks(self, task: np.ndarray, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Legal actions bool [B, NUM_ACTIONS] in schedules with these indices int64 [B] and rows, as of `GirTable.masks`."""
        first, after = self.first[task], self.numbering.take(task).successors(numbers, rows)
        return legal_actions(first + numbers, first[:, None] + after, self.primitives, self.legal, self.moved)
