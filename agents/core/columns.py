"""Coordinate descent on a program: all tiles of one axis at a time, over all their chains; then one knob at a time.

A walk changes one tile of one level, whose size must stay a multiple of the one below: to leave a register tile of 16 rows
for one of 12, all that is built on it has to be taken down first. A column of the schedule changes as a whole here.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import KNOB_UP
from gensor_gym.graph.enumeration import axis_choices, knob_choices
from gensor_gym.graph.knobs import KNOBS
from gensor_gym.graph.layout import KNOB, LEVEL, MAX_AXES, TILE
from gensor_gym.graph.tables import ALLOWED, NUM_LEVELS

Move = tuple[int, int, np.ndarray]
"""Where a column starts in a row, its step, and the values it may take, int32 [choices, length]."""


class Columns:
    """The columns of a graph's schedules: made once, since listing all chains of an axis takes longer than a descent."""

    def __init__(self, graph: ConstructionGraph, kept: Collection[int] = ()) -> None:
        """List what every axis and knob may be; knobs at the places `kept` of a row stay as they are."""
        self.graph = graph
        ints, sizes = graph.tables.ints, graph.tables.sizes
        axes = [(TILE + axis, MAX_AXES, choices) for axis, choices in enumerate(axis_choices(ints, sizes))]
        knobs = [index for index in range(len(KNOBS)) if ints[ALLOWED + KNOB_UP + index]]
        values = [(KNOB + k, 1, np.array(v)[:, None]) for k, v in zip(knobs, knob_choices(ints), strict=True)]
        self.moves: list[Move] = [move for move in [*axes, *values] if len(move[2]) > 1 and move[0] not in kept]

    def descend(self, row: np.ndarray) -> tuple[np.ndarray, float]:
        """(the program from which no column gains, its seconds by the model), from `row` [ROW]."""
        row = self.opened(row)
        best = float(self.graph.latencies(row[None])[0])
        idle, turn = 0, 0
        while idle < len(self.moves):
            rows = _changed(row, self.moves[turn % len(self.moves)])
            latencies = self.graph.latencies(rows)
            at = int(np.argmin(latencies))
            improved = latencies[at] < best
            if improved:
                row, best = rows[at], float(latencies[at])
            idle, turn = (0 if improved else idle + 1), turn + 1
        return row, best

    def neighbours(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Legal programs [N, ROW] that differ from `row` in one column, and their seconds by the model [N]."""
        opened = self.opened(row)
        rows = np.concatenate([opened[None], *(_changed(opened, move) for move in self.moves)])
        seconds = self.graph.latencies(rows)
        kept = np.isfinite(seconds) & (rows != opened).any(axis=1)
        return rows[kept], seconds[kept]

    def opened(self, row: np.ndarray) -> np.ndarray:
        """The row with all levels opened, which changes no program."""
        row = row.copy()
        row[LEVEL] = self.graph.tables.ints[NUM_LEVELS] - 1
        return row


def _changed(row: np.ndarray, move: Move) -> np.ndarray:
    """The row with every value of a column [choices, ROW]."""
    start, step, choices = move
    rows = np.repeat(row[None], len(choices), axis=0)
    rows[:, start : start + step * choices.shape[1] : step] = choices
    return rows
