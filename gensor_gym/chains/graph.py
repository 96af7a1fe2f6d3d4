"""The graph of schedules of one chain on one machine: rules and model behind the face that searches use."""

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
        """ValueError for a graph that is no chain, a machine that is no CPU, or a space that chains do not have."""
        if hardware.kind != "cpu" or space != "gir":
            raise ValueError(f"{operator} on {hardware.name}, space {space!r}: chains have code for CPUs, in space gir")
        self.operator, self.hardware, self.space = operator, hardware, space
        self.chain = chain_of(operator)
        self.model = ChainModel(self.chain, hardware)

    @property
    def horizon(self) -> int:
        """Steps of a walk: enough to raise every field to its top, and half as many again."""
        return 3 * int(TOPS.sum()) // 2

    def initial(self) -> ChainSchedule:
        """Everything at its first value."""
        return ChainSchedule(np.zeros(ROW, np.int32))

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Which rows int32 [B, ROW] are within the limits, bool [B]."""
        return self.model.fits(rows)

    def applied(self, rows: np.ndarray) -> np.ndarray:
        """Rows int32 [B, ROW] after each of all actions, int32 [B, N, ROW]; an index that leaves its range stays."""
        return step_fields(np.repeat(rows[:, None, :], len(ACTIONS), axis=1), TOPS)

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: ChainSchedule | None = None
    ) -> ChainSchedule:
        """A legal schedule: any of the space where neither is given, else the end of a walk over random legal actions."""
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
        """Seconds that no program is faster than."""
        return roofline_floor(self.operator, self.hardware)
