"""A whole space of schedules as tables: legality and time of each schedule are looked up by its number.

Spaces of fused operators are small. A table takes less than a second; steps of thousands of environments are then a few look-ups,
and the optimum is the smallest entry, so every task is certified by enumeration.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.actions import STOP
from gensor_gym.gir.model import TERMS, GirModel
from gensor_gym.gir.nest import RowNest
from gensor_gym.gir.schedule import GirSchedule
from gensor_gym.gir.space.numbering import Numbering

LARGEST = 1 << 20
"""Most schedules, legal or not, of a space that gets a table."""
_BATCH = 1 << 16


class Spanned(Protocol):
    """Protocol of a graph of schedules from which a table is made; `gir.graph.GirGraph` implements it."""

    operator: Dataflow
    nest: RowNest
    model: GirModel
    space: str
    primitives: np.ndarray

    @property
    def size(self) -> int:
        """Number of schedules, legal or not."""

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Whether each schedule of int32 [B, ROW] is legal, bool [B]."""

    def moved_bytes(self, rows: np.ndarray) -> np.ndarray:
        """Bytes that schedules int32 [B, ROW] move, int64 [B]."""


def legal_actions(
    here: np.ndarray, there: np.ndarray, primitives: np.ndarray, legal: np.ndarray, moved: np.ndarray | None
) -> np.ndarray:
    """Legal actions bool [B, NUM_ACTIONS] of schedules `here` int64 [B], whose actions lead to `there` int64 [B, NUM_ACTIONS].

    `primitives`, bool [NUM_ACTIONS], are the actions of the space. `here` and `there` are indices into the tables `legal` and
    `moved`, [S]. `moved` are the moved bytes if no action may increase them, else None.
    """
    found: np.ndarray = (there != here[:, None]) & legal[there] & primitives
    if moved is not None:
        found &= moved[there] <= moved[here][:, None]
    found[:, STOP] = True
    return found


class GirTable:
    """Tables of the whole space of one graph."""

    def __init__(self, graph: Spanned) -> None:
        """Compute the tables; ValueError if the space is too large."""
        if graph.size > LARGEST:
            size = f"{graph.size} schedules with {len(graph.nest.crossing)} values to place"
            raise ValueError(f"{graph.operator}: {size}, a table takes at most {LARGEST}")
        self.graph = graph
        self.numbering = Numbering.of(graph.nest)
        self.legal = np.zeros(graph.size, bool)
        self.terms = np.full((graph.size, 1 + len(TERMS)), np.inf)
        """Predicted seconds, the total first, float64 [S, 1 + terms]; infinite for illegal schedules."""
        self.bytes = np.zeros(graph.size, np.int64)
        """Moved bytes (`GirGraph.moved_bytes`), int64 [S]."""
        for start in range(0, graph.size, _BATCH):
            chosen = np.arange(start, min(start + _BATCH, graph.size))
            rows = self.rows(chosen)
            legal = graph.fits(rows)
            self.legal[chosen] = legal
            self.terms[chosen[legal]] = graph.model.terms(rows[legal])
            self.bytes[chosen[legal]] = graph.moved_bytes(rows[legal])

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Numbers int64 [B] of schedules int32 [B, ROW]."""
        return self.numbering.numbers(rows)

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Schedules int32 [B, ROW] of numbers int64 [B]."""
        return self.numbering.rows(numbers)

    def after(self, numbers: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Numbers int64 [B] of the schedules after `actions`, int64 [B]; an action that would leave the range changes nothing."""
        return self.numbering.after(numbers, actions)

    def successors(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers int64 [B, NUM_ACTIONS] of the schedules after every action; one that would leave the range changes nothing."""
        return self.numbering.successors(numbers, self.rows(numbers))

    def masks(self, numbers: np.ndarray) -> np.ndarray:
        """Legal actions bool [B, NUM_ACTIONS]: `stop`, and actions of the space that lead to another legal schedule."""
        return legal_actions(numbers, self.successors(numbers), self.graph.primitives, self.legal, self.moved)

    @property
    def moved(self) -> np.ndarray | None:
        """Moved bytes int64 [S] if no action of the space may increase them, else None."""
        return self.bytes if self.graph.space == "monotone" else None

    @property
    def seconds(self) -> np.ndarray:
        """Predicted seconds, float64 [S]; infinite for illegal schedules."""
        return self.terms[:, 0]

    @cached_property
    def reachable(self) -> np.ndarray:
        """Whether legal actions lead from the unscheduled program to each schedule, bool [S]."""
        found = np.zeros(len(self.legal), bool)
        front = np.zeros(1, np.int64)
        while len(front):
            found[front] = True
            after = self.successors(front)[self.masks(front)]
            front = np.unique(after[~found[after]])
        return found

    @cached_property
    def optimum(self) -> tuple[GirSchedule, float]:
        """(reachable schedule with the shortest predicted time, this time in seconds)."""
        seconds = np.where(self.reachable, self.seconds, np.inf)
        best = int(seconds.argmin())
        return GirSchedule(self.rows(np.array([best]))[0]), float(seconds[best])
