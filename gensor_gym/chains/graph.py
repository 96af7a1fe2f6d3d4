"""The graph of schedules of one chain of products (attention) on one machine, with the interface that searches use."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.model import TERMS, ChainModel
from gensor_gym.chains.schedule import FIELDS, ROW, TOPS, ChainSchedule
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.hardware.types import Hardware
from gensor_gym.rows.fields import FieldAction, names_of_moves, step_fields
from gensor_gym.rows.steps import StepGraph

ACTIONS = (FieldAction("stop"), *(FieldAction(*move) for move in names_of_moves(FIELDS)))


class ChainGraph(StepGraph[ChainSchedule]):
    """Nodes are schedules of `operator` for `hardware`; edges raise or lower a field."""

    actions, kind, parts = ACTIONS, ChainSchedule, TERMS
    model: ChainModel

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str = "gir") -> None:
        """Recognise the chain and build its model. ValueError if it is not a chain, not on a CPU, or not in space `gir`."""
        if hardware.kind != "cpu" or space != "gir":
            raise ValueError(f"{operator} on {hardware.name}, space {space!r}: chains have code for CPUs, in space gir")
        self.operator, self.hardware, self.space = operator, hardware, space
        self.chain = chain_of(operator)
        self.model = ChainModel(self.chain, hardware)

    @property
    def horizon(self) -> int:
        """Number of steps of a walk: 1.5 times the steps that raise every field to its top."""
        return 3 * int(TOPS.sum()) // 2

    def initial(self) -> ChainSchedule:
        """Schedule with every field at its first value."""
        return ChainSchedule(np.zeros(ROW, np.int32))

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of rows int32 [B, ROW] is within the limits, bool [B]."""
        return self.model.fits(rows)

    def applied(self, rows: np.ndarray) -> np.ndarray:
        """Results of every action on rows int32 [B, ROW], int32 [B, N, ROW]; an index does not leave its range."""
        return step_fields(np.repeat(rows[:, None, :], len(ACTIONS), axis=1), TOPS)

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: ChainSchedule | None = None
    ) -> ChainSchedule:
        """A random legal schedule: the end of a walk of `steps` random legal actions from `start`.

        If neither is given, it is drawn uniformly from the space.
        """
        if steps is None and start is None:
            return ChainSchedule(self._all[rng.integers(len(self._all))])
        return self.walk(rng, start or self.initial(), self.horizon if steps is None else steps)

    @cached_property
    def _all(self) -> np.ndarray:
        """All legal rows, int32 [S, ROW]."""
        every = np.array(list(itertools.product(*(range(top + 1) for top in TOPS.tolist()))), np.int32)
        found: np.ndarray = every[self.fits(every)]
        return found

    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """Every schedule of the space, in batches of rows int32 [<= batch, ROW]."""
        for start in range(0, len(self._all), batch):
            yield self._all[start : start + batch]

    @cached_property
    def floor(self) -> float:
        """Lower bound in seconds on the time of any program, from the roofline."""
        return roofline_floor(self.operator, self.hardware)
