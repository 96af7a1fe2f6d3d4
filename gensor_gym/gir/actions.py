"""The actions that change the schedule of a row nest (the loops of a fused operator over rows and columns), in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import FIELDS, HEADER, MOST_PLACED, GirSchedule
from gensor_gym.rows.fields import FieldAction, names_of_moves, step_fields


@dataclass(frozen=True)
class GirAction(FieldAction):
    """An action on the schedule of a fused operator.

    `stop` ends the episode, and `raise` or `lower` changes a field such as the vector width. `place` chooses the memory level
    `level` for value number `cell`, one of the values that several passes over a row read.
    """

    cell: int = -1
    level: Level = Level.DRAM

    def __str__(self) -> str:
        """Return the action as text, such as `raise rows` or `place 1 at sram`."""
        if self.primitive == "place":
            return f"place {self.cell} at {self.level.name.lower()}"
        return super().__str__()


STOP = 0
ACTIONS = (
    GirAction("stop"),
    *(GirAction(*move) for move in names_of_moves(FIELDS)),
    *(GirAction("place", cell=cell, level=level) for cell in range(MOST_PLACED) for level in Level),
)
NUM_ACTIONS = len(ACTIONS)

SPACES = ("gir", "monotone", "powerfusion")
"""Names of the spaces, which are named subsets of the actions.

`gir` has all actions. `monotone` (the title of IntelliGen's later paper) forbids actions that increase the moved bytes.

`powerfusion` has the operations of its authors' public code (InfiniTensor, branch power-fusion). Kernels with equal loops are
merged, and a value that is written and read again stays in the group's memory or in registers. Loops use wider instructions, more
instructions in parallel, and more steps. Nothing is recomputed, rows are not interleaved, and stores use the caches.
"""


def primitives_of(space: str) -> np.ndarray:
    """Return whether each action is allowed in a space (a named subset of the actions, see `SPACES`), bool [NUM_ACTIONS]."""
    if space != "powerfusion":
        return np.ones(NUM_ACTIONS, bool)
    kept = {"raise vector", "raise tile", "raise loop", "lower loop", "stop"}
    placed = (Level.SRAM, Level.REG)
    return np.array([str(one) in kept or (one.primitive == "place" and one.level in placed) for one in ACTIONS])


def applied(rows: np.ndarray) -> np.ndarray:
    """Apply every action to each schedule of int32 [B, ROW].

    Return the results, int32 [B, NUM_ACTIONS, ROW]. An action that would leave a field's range changes nothing.
    """
    found = np.repeat(rows[:, None, :], NUM_ACTIONS, axis=1)
    for number, action in enumerate(ACTIONS[1:], 1):
        if action.primitive == "place":
            found[:, number, HEADER + action.cell] = action.level
    return step_fields(found, GirSchedule.tops[:HEADER])
