"""The graph of schedules of one fused operator on one machine: rules and model behind the face that searches use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.actions import ACTIONS, SPACES, applied, primitives_of
from gensor_gym.gir.gpu.model import GpuModel
from gensor_gym.gir.gpu.rules import GpuRules
from gensor_gym.gir.gpu.teams import WARP
from gensor_gym.gir.model import TERMS, GirModel
from gensor_gym.gir.parts import nest_on
from gensor_gym.gir.placement import levels_of
from gensor_gym.gir.rules import GirRules, by_placement
from gensor_gym.gir.schedule import FIELDS, HEADER, ROW, GirSchedule
from gensor_gym.gir.space.numbering import Numbering
from gensor_gym.gir.space.table import LARGEST, GirTable
from gensor_gym.hardware.types import Hardware
from gensor_gym.rows.steps import StepGraph

MOST_ENUMERATED = 1 << 24
"""Schedules, legal or not, of a space that is enumerated: some minutes."""


class GirGraph(StepGraph[GirSchedule]):
    """Nodes are schedules of `operator` for `hardware`; edges are the primitives of `space`."""

    actions, kind, parts = ACTIONS, GirSchedule, TERMS
    model: GirModel | GpuModel

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str = "gir") -> None:
        """ValueError for a graph that is no row nest, a GPU of wider warps, an unknown space."""
        if space not in SPACES:
            raise ValueError(f"space {space!r} of {operator}: expected one of {', '.join(SPACES)}")
        if hardware.kind == "gpu" and hardware.warp != WARP:
            raise ValueError(f"{operator} on {hardware.name}: fused operators have code for CPUs and GPUs of {WARP} lanes a warp")
        self.operator, self.hardware, self.space = operator, hardware, space
        self.nest, self.primitives = nest_on(operator, hardware), primitives_of(space)
        rules, model = (GirRules, GirModel) if hardware.kind == "cpu" else (GpuRules, GpuModel)
        self.rules, self.model = rules(self.nest, hardware), model(self.nest, hardware)

    @property
    def horizon(self) -> int:
        """Steps of an episode: enough to raise every field to its top, place every cell once, and half as many again."""
        steps = sum(len(field.values) - 1 for field in FIELDS) + len(self.nest.crossing)
        return math.ceil(1.5 * steps)

    def initial(self) -> GirSchedule:
        """The unscheduled program: no vectors or tiles, and every value in DRAM between kernels."""
        return GirSchedule(np.zeros(ROW, np.int32))

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Which rows int32 [B, ROW] are within the limits, bool [B]."""
        return self.rules.fits(rows)

    def applied(self, rows: np.ndarray) -> np.ndarray:
        """Rows int32 [B, ROW] after each of all actions, int32 [B, N, ROW]; unchanged for actions outside the space."""
        after = applied(rows)
        after[:, ~self.primitives] = rows[:, None, :]
        return after

    def may_follow(self, rows: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Which rows int32 [B, ROW] may become `after`, int32 [B, ROW]: bool [B]."""
        found = self.fits(after)
        if self.space == "monotone":
            found &= self.moved_bytes(after) <= self.moved_bytes(rows)
        return found

    def moved_bytes(self, rows: np.ndarray) -> np.ndarray:
        """Bytes to and from DRAM's tensors and buffers of rows, of rows int32 [B, ROW], int64 [B]."""
        found = np.zeros(len(rows), np.int64)
        for placement, chosen in by_placement(rows, len(self.nest.crossing)):
            profile = self.model.profile(placement)
            moves = sum(p.inputs + p.again + p.outputs + p.spills + p.scratch for k in profile.kernels for p in k.passes)
            found[chosen] = 4 * round(moves * self.nest.elements)
        return found

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: GirSchedule | None = None
    ) -> GirSchedule:
        """A legal schedule: any of the whole space where neither is given, else the end of a walk over random legal actions."""
        if steps is None and start is None and len(self._all):
            return GirSchedule(self._all[rng.integers(len(self._all))])
        if steps is None:
            steps = int(rng.integers(self.horizon // 2, self.horizon))
        return self.walk(rng, start or self.initial(), steps)

    @property
    def size(self) -> int:
        """Rows that the ranges of fields and levels say, legal or not."""
        return Numbering.of(self.nest).size

    @cached_property
    def _all(self) -> np.ndarray:
        """All legal rows of a small space, int32 [S, ROW]."""
        return np.concatenate(list(self.enumerate())) if self.size <= LARGEST else np.empty((0, ROW), np.int32)

    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """Every schedule of the space, in batches of rows int32 [<= batch, ROW]; ValueError if they are too many.

        In space `gir` these are all legal ones, else those that primitives reach.
        """
        if self.size > MOST_ENUMERATED:
            raise ValueError(
                f"{self.operator}: {self.size} schedules with {len(self.nest.crossing)} values to place, expected at most "
                f"{MOST_ENUMERATED} to enumerate; search them, as with strategy local_search"
            )
        return self._batches(batch)

    def _batches(self, batch: int) -> Iterator[np.ndarray]:
        header = itertools.product(*(range(len(field.values)) for field in FIELDS))
        headers = np.array(list(header), np.int32)
        levels = itertools.product(*(levels_of(self.nest, name) for name in self.nest.crossing))
        for placed in levels:
            rows = np.zeros((len(headers), ROW), np.int32)
            rows[:, :HEADER] = headers
            rows[:, HEADER : HEADER + len(placed)] = placed
            rows = rows[self.fits(rows)]
            if self.space != "gir":
                rows = rows[self.table.reachable[self.table.numbers(rows)]]
            for start in range(0, len(rows), batch):
                yield rows[start : start + batch]

    @cached_property
    def table(self) -> GirTable:
        """The whole space, made once; ValueError if it is too large."""
        return GirTable(self)

    @cached_property
    def least(self) -> float | None:
        """Seconds of the optimum; None if the space is too large to be gone through."""
        return self.optimum()[1] if self.size <= LARGEST else None

    @cached_property
    def floor(self) -> float:
        """Seconds that no program is faster than."""
        return roofline_floor(self.operator, self.hardware)

    def optimum(self) -> tuple[GirSchedule, float]:
        """The fastest schedule by the model that primitives lead to, and its seconds; ValueError if the space is too large."""
        return self.table.optimum
