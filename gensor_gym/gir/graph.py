"""The graph of schedules of one fused operator on one machine: rules and model behind the interface that searches use."""

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
"""Most schedules, legal or not, of a space that can be enumerated; that many take some minutes."""


class GirGraph(StepGraph[GirSchedule]):
    """Construction graph of a row nest: nodes are schedules of `operator` for `hardware`, edges are the actions of `space`."""

    actions, kind, parts = ACTIONS, GirSchedule, TERMS
    model: GirModel | GpuModel

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str = "gir") -> None:
        """Build nest, rules and model. ValueError for a graph that is no row nest, GPUs without warps of 32, or another space."""
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
        """Number of steps of an episode: 1.5 times the steps that raise every field to its top and place every value once."""
        steps = sum(len(field.values) - 1 for field in FIELDS) + len(self.nest.crossing)
        return math.ceil(1.5 * steps)

    def initial(self) -> GirSchedule:
        """The unscheduled program: no vectors or tiles, and every crossing value in DRAM between kernels."""
        return GirSchedule(np.zeros(ROW, np.int32))

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Whether each schedule of int32 [B, ROW] is within the limits, bool [B]."""
        return self.rules.fits(rows)

    def applied(self, rows: np.ndarray) -> np.ndarray:
        """Results of every action on schedules int32 [B, ROW], as int32 [B, N, ROW]; actions outside the space change nothing."""
        after = applied(rows)
        after[:, ~self.primitives] = rows[:, None, :]
        return after

    def may_follow(self, rows: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Whether the space allows the step from each schedule of `rows`, int32 [B, ROW], to that of `after`; bool [B]."""
        found = self.fits(after)
        if self.space == "monotone":
            found &= self.moved_bytes(after) <= self.moved_bytes(rows)
        return found

    def moved_bytes(self, rows: np.ndarray) -> np.ndarray:
        """Bytes that schedules int32 [B, ROW] move to and from tensors in DRAM and row buffers, int64 [B]."""
        found = np.zeros(len(rows), np.int64)
        for placement, chosen in by_placement(rows, len(self.nest.crossing)):
            profile = self.model.profile(placement)
            moves = sum(p.inputs + p.again + p.outputs + p.spills + p.scratch for k in profile.kernels for p in k.passes)
            found[chosen] = self.nest.item_bytes * round(moves * self.nest.elements)
        return found

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: GirSchedule | None = None
    ) -> GirSchedule:
        """A random legal schedule: the end of a walk of `steps` random legal actions from `start`.

        Without `steps` and `start`, the schedule is drawn uniformly from the whole space if the space is small.
        """
        if steps is None and start is None and len(self._all):
            return GirSchedule(self._all[rng.integers(len(self._all))])
        if steps is None:
            steps = int(rng.integers(self.horizon // 2, self.horizon))
        return self.walk(rng, start or self.initial(), steps)

    @property
    def size(self) -> int:
        """Number of schedules, legal or not: the product of the ranges of fields and levels."""
        return Numbering.of(self.nest).size

    @cached_property
    def _all(self) -> np.ndarray:
        """All legal rows, int32 [S, ROW]; empty for a large space."""
        return np.concatenate(list(self.enumerate())) if self.size <= LARGEST else np.empty((0, ROW), np.int32)

    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """Every schedule of the space, in batches of rows int32 [<= batch, ROW]; ValueError if there are too many.

        In space `gir` these are all legal schedules, in other spaces those that actions reach from the unscheduled program.
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
        """Table of the whole space, computed at first use; ValueError if the space is too large."""
        return GirTable(self)

    @cached_property
    def least(self) -> float | None:
        """Predicted time of the optimum, in seconds; None if the space is too large for a table."""
        return self.optimum()[1] if self.size <= LARGEST else None

    @cached_property
    def floor(self) -> float:
        """Lower bound in seconds on the time of any program, from the roofline."""
        return roofline_floor(self.operator, self.hardware)

    def optimum(self) -> tuple[GirSchedule, float]:
        """(reachable schedule with the shortest predicted time, this time in seconds); ValueError if the space is too large."""
        return self.table.optimum
