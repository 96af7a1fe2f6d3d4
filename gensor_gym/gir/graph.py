"""The graph of schedules of one fused operator on one machine: rules and model behind the face that searches use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.actions import ACTIONS, SPACES, STOP, GirAction, applied, primitives_of
from gensor_gym.gir.gpu.model import GpuModel
from gensor_gym.gir.gpu.rules import GpuRules
from gensor_gym.gir.gpu.teams import WARP
from gensor_gym.gir.model import TERMS, GirModel
from gensor_gym.gir.nest import row_nest
from gensor_gym.gir.placement import levels_of
from gensor_gym.gir.rules import GirRules, by_placement
from gensor_gym.gir.schedule import FIELDS, HEADER, ROW, GirSchedule
from gensor_gym.gir.space.numbering import Numbering
from gensor_gym.gir.space.table import LARGEST, GirTable
from gensor_gym.hardware.types import Hardware

MOST_ENUMERATED = 1 << 24
"""Schedules, legal or not, of a space that is enumerated: some minutes."""


class GirGraph:
    """Nodes are schedules of `operator` for `hardware`; edges are the primitives of `space`."""

    actions: tuple[GirAction, ...] = ACTIONS
    meter: Callable[[int], None] | None = None
    """Told of every evaluation of the model before it is made, by a session that pays for them."""

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str = "gir") -> None:
        """ValueError for a graph that is no row nest, a GPU of wider warps, an unknown space."""
        if space not in SPACES:
            raise ValueError(f"space {space!r} of {operator}: expected one of {', '.join(SPACES)}")
        if hardware.kind == "gpu" and hardware.warp != WARP:
            raise ValueError(f"{operator} on {hardware.name}: fused operators have code for CPUs and GPUs of {WARP} lanes a warp")
        self.operator, self.hardware, self.space = operator, hardware, space
        self.nest, self.primitives = row_nest(operator), primitives_of(space)
        rules, model = (GirRules, GirModel) if hardware.kind == "cpu" else (GpuRules, GpuModel)
        self.rules, self.model = rules(self.nest, hardware), model(self.nest, hardware)
        self.evaluations = 0

    @property
    def horizon(self) -> int:
        """Steps of an episode: enough to raise every field to its top, place every cell once, and half as many again."""
        steps = sum(len(field.values) - 1 for field in FIELDS) + len(self.nest.crossing)
        return math.ceil(1.5 * steps)

    def initial(self) -> GirSchedule:
        """The unscheduled program: numbers one at a time, what is computed kept in DRAM between kernels."""
        return GirSchedule(np.zeros(ROW, np.int32))

    def schedule(self, row: np.ndarray) -> GirSchedule:
        """The schedule of a row int32 [ROW]."""
        return GirSchedule(row)

    def parse(self, text: str) -> GirSchedule:
        """The schedule of a text; ValueError where it does not read."""
        return GirSchedule.parse(text)

    def stack(self, schedules: list[GirSchedule]) -> np.ndarray:
        """Schedules as rows int32 [B, ROW]."""
        return np.stack([s.row for s in schedules]) if schedules else np.empty((0, ROW), np.int32)

    def is_legal_once(self, schedule: GirSchedule) -> bool:
        """`is_legal`, which compiles nothing."""
        return self.is_legal(schedule)

    def is_legal(self, schedule: GirSchedule) -> bool:
        """Whether the schedule is a node of this graph within the machine's limits."""
        return bool(self.fits(schedule.row[None])[0])

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Which rows int32 [B, ROW] are within the limits, bool [B]."""
        return self.rules.fits(rows)

    def action_mask(self, schedule: GirSchedule) -> np.ndarray:
        """Legal actions, bool [N]."""
        return self.action_masks(schedule.row[None])[0]

    def action_masks(self, rows: np.ndarray) -> np.ndarray:
        """Legal actions of every row, bool [B, N]: those that change it to a legal row, and `stop`."""
        after = applied(rows)
        legal = np.any(after != rows[:, None, :], axis=2) & self.primitives
        places = np.nonzero(legal)
        legal[places] = self.fits(after[places])
        if self.space == "monotone":
            legal[places] &= self.moved_bytes(after[places]) <= self.moved_bytes(rows)[places[0]]
        legal[:, STOP] = True
        return legal

    def moved_bytes(self, rows: np.ndarray) -> np.ndarray:
        """Bytes to and from DRAM's tensors and buffers of rows, of rows int32 [B, ROW], int64 [B]."""
        found = np.zeros(len(rows), np.int64)
        for placement, chosen in by_placement(rows, len(self.nest.crossing)):
            profile = self.model.profile(placement)
            moves = sum(p.inputs + p.again + p.outputs + p.spills + p.scratch for k in profile.kernels for p in k.passes)
            found[chosen] = 4 * round(moves * self.nest.columns * self.nest.rows)
        return found

    def transition(self, schedule: GirSchedule, action: int) -> GirSchedule:
        """The successor; an illegal action, or `stop`, returns the schedule unchanged."""
        after, legal = self.transitions(schedule.row[None], np.array([action]))
        return GirSchedule(after[0]) if legal[0] else schedule

    def transitions(self, rows: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(successors int32 [B, ROW], legal bool [B]) of one action for each row, which must be legal."""
        after = applied(rows)[np.arange(len(rows)), actions]
        legal = np.any(after != rows, axis=1) & self.primitives[actions]
        legal[legal] = self.fits(after[legal])
        if self.space == "monotone":
            legal[legal] = self.moved_bytes(after[legal]) <= self.moved_bytes(rows[legal])
        return np.where(legal[:, None], after, rows), legal

    def successors(self, schedule: GirSchedule) -> dict[int, GirSchedule]:
        """Legal actions except `stop`, each with the schedule it leads to."""
        after = applied(schedule.row[None])[0]
        return {int(a): GirSchedule(after[a]) for a in np.flatnonzero(self.action_mask(schedule)) if a != STOP}

    def charge(self, evaluations: int, improvements: np.ndarray | None = None) -> None:
        """Count evaluations of the model; see `ConstructionGraph.charge`."""
        if self.meter is not None:
            self.meter(evaluations)
        self.evaluations += evaluations

    def latency(self, schedule: GirSchedule) -> float:
        """Seconds by the model; infinite for an illegal schedule."""
        return float(self.latencies(schedule.row[None])[0])

    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of every row, float64 [B]; infinite for illegal ones."""
        self.charge(len(rows))
        seconds = np.full(len(rows), np.inf)
        legal = self.fits(rows)
        seconds[legal] = self.model.terms(rows[legal])[:, 0]
        return seconds

    def terms(self, schedule: GirSchedule) -> dict[str, float]:
        """The parts of the latency in seconds, by name."""
        self.charge(1)
        return dict(zip(TERMS, self.model.terms(schedule.row[None])[0, 1:].tolist(), strict=True))

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: GirSchedule | None = None
    ) -> GirSchedule:
        """A legal schedule: any of the whole space where neither is given, else the end of a walk over random legal actions."""
        if steps is None and start is None and len(self._all):
            return GirSchedule(self._all[rng.integers(len(self._all))])
        found = start or self.initial()
        for _ in range(steps if steps is not None else int(rng.integers(self.horizon // 2, self.horizon))):
            legal = np.flatnonzero(self.action_mask(found))[1:]
            if len(legal):
                found = self.transition(found, int(rng.choice(legal)))
        return found

    @property
    def size(self) -> int:
        """Rows that the ranges of fields and levels say, legal or not."""
        return Numbering.of(self.nest).size

    @cached_property
    def _all(self) -> np.ndarray:
        """All legal rows where there are few, int32 [S, ROW]."""
        return np.concatenate(list(self.enumerate())) if self.size <= LARGEST else np.empty((0, ROW), np.int32)

    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """Every schedule of the space, in batches of rows int32 [<= batch, ROW]; ValueError where they are too many.

        In space `gir` these are all that are legal, else those that primitives lead to.
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
        """The whole space, made once; ValueError where it is too large."""
        return GirTable(self)

    @cached_property
    def least(self) -> float | None:
        """Seconds of the optimum; None where the space is too large to be gone through."""
        return self.optimum()[1] if self.size <= LARGEST else None

    @cached_property
    def floor(self) -> float:
        """Seconds that no program is faster than."""
        return roofline_floor(self.operator, self.hardware)

    def optimum(self) -> tuple[GirSchedule, float]:
        """The fastest schedule by the model that primitives lead to, and its seconds; ValueError where the space is too large."""
        return self.table.optimum
