"""Tables of a whole space of schedules: legality and predicted time of each schedule are looked up by its number.

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
"""Most schedules, legal or not, of a space for which tables are computed."""
_BATCH = 1 << 16


class Spanned(Protocol):
    """Protocol of a construction graph whose schedules can be tabulated: it has a size, limits and a model.

    `gir.graph.GirGraph` implements it.
    """

    operator: Dataflow
    nest: RowNest
    model: GirModel
    space: str
    primitives: np.ndarray

    @property
    def size(self) -> int:
        """Number of schedules, legal or not."""

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each schedule of int32 [B, ROW] is legal, bool [B]."""

    def moved_bytes(self, rows: np.ndarray) -> np.ndarray:
        """Return the bytes that each schedule of int32 [B, ROW] moves to and from memory, int64 [B]."""


def legal_actions(
    here: np.ndarray, there: np.ndarray, primitives: np.ndarray, legal: np.ndarray, moved: np.ndarray | None
) -> np.ndarray:
    """Return the legal actions of many schedules, bool [B, NUM_ACTIONS].

    The schedules have numbers `here`, int64 [B], and actions lead to numbers `there`, int64 [B, NUM_ACTIONS].

    `primitives`, bool [NUM_ACTIONS], are the actions of the space. `legal` and `moved`, [S], are tables by number of schedule:
    legality, and moved bytes if no action may increase them (else None).
    """
    found: np.ndarray = (there != here[:, None]) & legal[there] & primitives
    if moved is not None:
        found &= moved[there] <= moved[here][:, None]
    found[:, STOP] = True
    return found


class GirTable:
    """Legality, predicted seconds and moved bytes of all schedules of one construction graph.

    Each array is indexed by the schedules' numbers.
    """

    def __init__(self, graph: Spanned) -> None:
        """Compute the tables; ValueError if the space is too large."""
        if graph.size > LARGEST:
            size = f"{graph.size} schedules with {len(graph.nest.crossing)} values to place"
            raise ValueError(f"{graph.operator}: {size}, a table takes at most {LARGEST}")
        self.graph = graph
        self.numbering = Numbering.of(graph.nest)
        self.legal = np.zeros(graph.size, bool)
        self.terms = np.full((graph.size, 1 + len(TERMS)), np.inf)
        """Predicted seconds of each schedule: the total, then each term; float64 [S, 1 + terms].

        Infinite for illegal schedules.
        """
        self.bytes = np.zeros(graph.size, np.int64)
        """Bytes that each schedule moves to and from memory (`GirGraph.moved_bytes`), int64 [S]."""
        for start in range(0, graph.size, _BATCH):
            chosen = np.arange(start, min(start + _BATCH, graph.size))
            rows = self.rows(chosen)
            legal = graph.fits(rows)
            self.legal[chosen] = legal
            self.terms[chosen[legal]] = graph.model.terms(rows[legal])
            self.bytes[chosen[legal]] = graph.moved_bytes(rows[legal])

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers int64 [B] of schedules int32 [B, ROW]."""
        return self.numbering.numbers(rows)

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the schedules, int32 [B, ROW], with the numbers `numbers`, int64 [B]."""
        return self.numbering.rows(numbers)

    def after(self, numbers: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return the numbers, int64 [B], of the schedules after one action each.

        `actions` are indices of actions, int64 [B]; an action that would leave the range of its field changes nothing.
        """
        return self.numbering.after(numbers, actions)

    def successors(self, numbers: np.ndarray) -> np.ndarray:
        """Return the numbers of the schedules after every action, int64 [B, NUM_ACTIONS].

        An action that would leave the range of its field changes nothing.
        """
        return self.numbering.successors(numbers, self.rows(numbers))

    def masks(self, numbers: np.ndarray) -> np.ndarray:
        """Return the legal actions of the schedules with the numbers `numbers`, bool [B, NUM_ACTIONS].

        They are `stop`, and the actions of the space that lead to another legal schedule.
        """
        return legal_actions(numbers, self.successors(numbers), self.graph.primitives, self.legal, self.moved)

    @property
    def moved(self) -> np.ndarray | None:
        """Bytes that each schedule moves, int64 [S], if the space forbids actions that increase them; else None."""
        return self.bytes if self.graph.space == "monotone" else None

    @property
    def seconds(self) -> np.ndarray:
        """Predicted time of each schedule in seconds, float64 [S]; infinite for illegal schedules."""
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
        """(schedule, seconds): the reachable schedule with the shortest predicted time, and that time."""
        seconds = np.where(self.reachable, self.seconds, np.inf)
        best = int(seconds.argmin())
        return GirSchedule(self.rows(np.array([best]))[0]), float(seconds[best])
