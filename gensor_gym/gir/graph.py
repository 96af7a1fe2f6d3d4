"""The construction graph of schedules of one fused operator on one machine.

It offers the limits and the analytic model of row nests through the interface that searches use.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.joins import check_pitches
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
"""Most schedules, legal or not, of a space that can be enumerated; such an enumeration takes some minutes."""


class GirGraph(StepGraph[GirSchedule]):
    """Construction graph of a row nest (a fused operator as loops over rows and columns).

    Nodes are schedules of `operator` for `hardware`, edges are the actions of the space `space`.
    """

    actions, kind, parts = ACTIONS, GirSchedule, TERMS
    model: GirModel | GpuModel

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str = "gir") -> None:
        """Express the operator as a row nest, and set up its limits and its cost model.

        ValueError for an operator that is no row nest, a GPU whose warps do not have 32 threads, or an unknown space.
        """
        if space not in SPACES:
            raise ValueError(f"space {space!r} of {operator}: expected one of {', '.join(SPACES)}")
        if hardware.kind == "gpu" and hardware.warp != WARP:
            raise ValueError(f"{operator} on {hardware.name}: fused operators have code for CPUs and GPUs of {WARP} lanes a warp")
        check_pitches(operator, hardware)
        self.operator, self.hardware, self.space = operator, hardware, space
        self.nest, self.primitives = nest_on(operator, hardware), primitives_of(space)
        rules, model = (GirRules, GirModel) if hardware.kind == "cpu" else (GpuRules, GpuModel)
        self.rules, self.model = rules(self.nest, hardware), model(self.nest, hardware)

    @property
    def horizon(self) -> int:
        """Number of steps of an episode.

        It is 1.5 times the number of actions that raise every field to its last value and place every value once.
        """
        steps = sum(len(field.values) - 1 for field in FIELDS) + len(self.nest.crossing)
        return math.ceil(1.5 * steps)

    def initial(self) -> GirSchedule:
        """Return the unscheduled program: scalar instructions, and DRAM for every value that several passes over a row read."""
        return GirSchedule(np.zeros(ROW, np.int32))

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each schedule of int32 [B, ROW] is within the limits of the machine, bool [B]."""
        return self.rules.fits(rows)

    def applied(self, rows: np.ndarray) -> np.ndarray:
        """Apply every action to each schedule of int32 [B, ROW].

        Return the results, int32 [B, N, ROW]; an action outside the space changes nothing.
        """
        after = applied(rows)
        after[:, ~self.primitives] = rows[:, None, :]
        return after

    def may_follow(self, rows: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return whether the space allows the step from each schedule to another, bool [B].

        `rows` are the schedules before the step and `after` those after it, int32 [B, ROW] each. The schedule after the step must
        be legal and, in space `monotone`, must not move more bytes.
        """
        found = self.fits(after)
        if self.space == "monotone":
            found &= self.moved_bytes(after) <= self.moved_bytes(rows)
        return found

    def moved_bytes(self, rows: np.ndarray) -> np.ndarray:
        """Return the bytes that each schedule of int32 [B, ROW] moves to and from DRAM and row buffers in SRAM, int64 [B]."""
        found = np.zeros(len(rows), np.int64)
        for placement, chosen in by_placement(rows, len(self.nest.crossing)):
            profile = self.model.profile(placement)
            moves = sum(p.inputs + p.again + p.outputs + p.spills + p.scratch for k in profile.kernels for p in k.passes)
            found[chosen] = self.nest.item_bytes * round(moves * self.nest.elements)
        return found

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: GirSchedule | None = None
    ) -> GirSchedule:
        """Draw a random legal schedule: walk `steps` random legal actions from `start` (by default the unscheduled program).

        Without `steps` and `start`, draw uniformly from all legal schedules if the space is small enough to enumerate.
        """
        if steps is None and start is None and len(self._all):
            return GirSchedule(self._all[rng.integers(len(self._all))])
        if steps is None:
            steps = int(rng.integers(self.horizon // 2, self.horizon))
        return self.walk(rng, start or self.initial(), steps)

    @property
    def size(self) -> int:
        """Number of schedules, legal or not.

        It is the product of the numbers of values of all fields and of levels of all placed values.
        """
        return Numbering.of(self.nest).size

    @cached_property
    def _all(self) -> np.ndarray:
        """All legal schedules, int32 [S, ROW]; empty if the space is too large to enumerate."""
        return np.concatenate(list(self.enumerate())) if self.size <= LARGEST else np.empty((0, ROW), np.int32)

    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """Yield every schedule of the space, in batches of int32 [<= batch, ROW]; ValueError if there are too many.

        In space `gir` these are all legal schedules, in other spaces those that legal actions reach from the unscheduled program.
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
        """Table of legality and predicted time of all schedules, computed at first use; ValueError if the space is too large."""
        return GirTable(self)

    @cached_property
    def least(self) -> float | None:
        """Predicted time of the fastest reachable schedule, in seconds; None if the space is too large for a table."""
        return self.optimum()[1] if self.size <= LARGEST else None

    @cached_property
    def floor(self) -> float:
        """Lower bound in seconds on the time of any program, from the roofline."""
        return roofline_floor(self.operator, self.hardware)

    def optimum(self) -> tuple[GirSchedule, float]:
        """Return (schedule, seconds): the reachable schedule with the shortest predicted time, and that time.

        ValueError if the space is too large for a table.
        """
        return self.table.optimum
