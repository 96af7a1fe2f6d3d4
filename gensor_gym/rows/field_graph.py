"""Base class of construction graphs whose schedules consist of named fields only; actions raise and lower a field."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from gensor_gym.rows.fields import Field, FieldAction, FieldSchedule, names_of_moves, step_fields
from gensor_gym.rows.steps import RowModel, StepGraph

Node = TypeVar("Node", bound=FieldSchedule)


class FittingModel(RowModel, Protocol):
    """Interface of an analytic model that also decides which schedules are legal."""

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each of the schedules `rows` int32 [B, ROW] is legal, bool [B]."""


def actions_of(fields: Sequence[Field]) -> tuple[FieldAction, ...]:
    """Return the actions of a graph: `stop`, then `raise` and `lower` of each field."""
    return (FieldAction("stop"), *(FieldAction(*move) for move in names_of_moves(fields)))


class FieldGraph(StepGraph[Node]):
    """Base class of construction graphs whose schedules only have named fields, such as a block size.

    Subclasses define `actions` by `actions_of`, `kind` and `model`. The space is small enough to list.
    """

    model: FittingModel

    @property
    @abstractmethod
    def floor(self) -> float:
        """Lower bound on the time of any program, in seconds."""

    @property
    def horizon(self) -> int:
        """Maximum number of steps of a walk: 1.5 times the steps that raise every field to its highest value."""
        return 3 * int(self.kind.tops.sum()) // 2

    def initial(self) -> Node:
        """Return the schedule with every field at its first value."""
        return self.kind(np.zeros(self.kind.length, np.int32))

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each of the schedules `rows` int32 [B, ROW] is within the limits of the hardware, bool [B]."""
        return self.model.fits(rows)

    def applied(self, rows: np.ndarray) -> np.ndarray:
        """Return the schedules after every action, int32 [B, N, ROW], given rows int32 [B, ROW].

        A field at the end of its range stays.
        """
        return step_fields(np.repeat(rows[:, None, :], len(self.actions), axis=1), self.kind.tops)

    def random_schedule(self, rng: np.random.Generator, steps: int | None = None, start: Node | None = None) -> Node:
        """Return a random legal schedule: the end of a walk of `steps` random legal actions from `start`.

        Without both arguments it is drawn uniformly from the space.
        """
        if steps is None and start is None:
            return self.kind(self._all[rng.integers(len(self._all))])
        return self.walk(rng, start or self.initial(), self.horizon if steps is None else steps)

    @cached_property
    def _all(self) -> np.ndarray:
        """All legal rows, int32 [S, ROW]."""
        every = np.array(list(itertools.product(*(range(top + 1) for top in self.kind.tops.tolist()))), np.int32)
        found: np.ndarray = every[self.fits(every)]
        return found

    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """Yield every schedule of the space, in batches of rows int32 [<= batch, ROW]."""
        for start in range(0, len(self._all), batch):
            yield self._all[start : start + batch]
