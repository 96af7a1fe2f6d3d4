"""The operators of an environment whose actions set columns: their graphs, and which action sets what."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar, NamedTuple

import numpy as np

from gensor_gym.env.columns import process
from gensor_gym.env.columns.places import Places, packed
from gensor_gym.env.tasks import OperatorSpec, TaskSet
from gensor_gym.graph.actions import SPACES
from gensor_gym.graph.tables.tables import HORIZON
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

FIRST_STEPS, STEPS_EACH = 8, 4
"""An episode has so many steps, and so many for every column with a choice."""


class Columns(NamedTuple):
    """What compiled code reads of K tasks, as of `places.packed`."""

    counts: np.ndarray
    places: np.ndarray
    offsets: np.ndarray
    actions: np.ndarray
    values: np.ndarray
    bounds: np.ndarray
    chains: np.ndarray


class ColumnTasks(TaskSet):
    """A `TaskSet` whose actions set whole columns, with a shorter horizon: 8 steps, and 4 for every column with a choice."""

    process: ClassVar[ModuleType] = process

    def __init__(self, operator: OperatorSpec, hardware: Hardware | str, space: str) -> None:
        """ValueError names what is not known, and a space whose moves only grow."""
        if space in SPACES and "inverse_tile" not in SPACES[space]:
            others = sorted(name for name, moves in SPACES.items() if "inverse_tile" in moves)
            raise ValueError(f"space {space!r} has no way back, which moves='columns' takes; it is one of {others}")
        self.places: Places | None = None
        super().__init__(operator, hardware, space)

    def _append(self, op: Operator) -> None:
        """As of a `TaskSet`; ValueError for an operator that asks for more actions than there are."""
        super()._append(op)
        if self.places is not None:
            try:
                self.places.check(self.graphs[self._index[op]])
            except ValueError:
                del self.graphs[self._index.pop(op)]
                raise

    def _stack(self) -> None:
        """Stack the graphs' tables, and the columns."""
        super()._stack()
        self.places = self.places or Places(self.graphs)
        self.num_actions = self.places.num_actions
        self.columns = Columns(*packed(self.graphs, self.places))
        self.ints[:, HORIZON] = FIRST_STEPS + STEPS_EACH * self.columns.counts

    @property
    def own(self) -> tuple[Columns]:
        """See `TaskSet.own`."""
        return (self.columns,)

    def meaning(self, task: int, action: int) -> str:
        """What an action does to the programs of a task, as text; ValueError where it is none."""
        assert self.places is not None
        return self.places.meaning(self.graphs[task], action)
