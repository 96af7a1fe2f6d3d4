"""The graph of schedules of one chain on one machine: rules and model behind the face that searches use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.model import TERMS, ChainModel
from gensor_gym.chains.schedule import FIELDS, ROW, TOPS, ChainSchedule
from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.hardware.types import Hardware


@dataclass(frozen=True)
class ChainAction:
    """`stop`, or `raise` or `lower` of a field."""

    primitive: str
    target: str = ""

    def __str__(self) -> str:
        """As `raise block`."""
        return f"{self.primitive} {self.target}".strip()


STOP = 0
ACTIONS = (ChainAction("stop"), *(ChainAction(word, field.name) for field in FIELDS for word in ("raise", "lower")))


class ChainGraph:
    """Nodes are schedules of `operator` for `hardware`; edges raise or lower a field."""

    actions: tuple[ChainAction, ...] = ACTIONS
    meter: Callable[[int], None] | None = None
    """Told of every evaluation of the model before it is made, by a session that pays for them."""

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str = "gir") -> None:
        """ValueError for a graph that is no chain, a machine that is no CPU, or a space that chains do not have."""
        if hardware.kind != "cpu" or space != "gir":
            raise ValueError(f"{operator} on {hardware.name}, space {space!r}: chains have code for CPUs, in space gir")
        self.operator, self.hardware, self.space = operator, hardware, space
        self.chain = chain_of(operator)
        self.model = ChainModel(self.chain, hardware)
        self.evaluations = 0

    @property
    def horizon(self) -> int:
        """Steps of a walk: enough to raise every field to its top, and half as many again."""
        return 3 * int(TOPS.sum()) // 2

    def initial(self) -> ChainSchedule:
        """Everything at its first value."""
        return ChainSchedule(np.zeros(ROW, np.int32))

    def schedule(self, row: np.ndarray) -> ChainSchedule:
        """The schedule of a row int32 [ROW]."""
        return ChainSchedule(row)

    def parse(self, text: str) -> ChainSchedule:
        """The schedule of a text; ValueError where it does not read."""
        return ChainSchedule.parse(text)

    def stack(self, schedules: list[ChainSchedule]) -> np.ndarray:
        """Schedules as rows int32 [B, ROW]."""
        return np.stack([s.row for s in schedules]) if schedules else np.empty((0, ROW), np.int32)

    def is_legal(self, schedule: ChainSchedule) -> bool:
        """Whether the schedule is a node of this graph within the machine's limits."""
        return bool(self.fits(schedule.row[None])[0])

    def is_legal_once(self, schedule: ChainSchedule) -> bool:
        """`is_legal`, which compiles nothing."""
        return self.is_legal(schedule)

    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Which rows int32 [B, ROW] are within the limits, bool [B]."""
        return self.model.fits(rows)

    def action_mask(self, schedule: ChainSchedule) -> np.ndarray:
        """Legal actions, bool [N]."""
        return self.action_masks(schedule.row[None])[0]

    def action_masks(self, rows: np.ndarray) -> np.ndarray:
        """Legal actions of every row, bool [B, N]: those that change it to a legal row, and `stop`."""
        after = _applied(rows)
        legal = np.any(after != rows[:, None, :], axis=2)
        places = np.nonzero(legal)
        legal[places] = self.fits(after[places])
        legal[:, STOP] = True
        return legal

    def transition(self, schedule: ChainSchedule, action: int) -> ChainSchedule:
        """The successor; an illegal action, or `stop`, returns the schedule unchanged."""
        after, legal = self.transitions(schedule.row[None], np.array([action]))
        return ChainSchedule(after[0]) if legal[0] else schedule

    def transitions(self, rows: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(successors int32 [B, ROW], legal bool [B]) of one action for each row, which must be legal."""
        after = _applied(rows)[np.arange(len(rows)), actions]
        legal = np.any(after != rows, axis=1)
        legal[legal] = self.fits(after[legal])
        return np.where(legal[:, None], after, rows), legal

    def successors(self, schedule: ChainSchedule) -> dict[int, ChainSchedule]:
        """Legal actions except `stop`, each with the schedule it leads to."""
        after = _applied(schedule.row[None])[0]
        return {int(a): ChainSchedule(after[a]) for a in np.flatnonzero(self.action_mask(schedule)) if a != STOP}

    def charge(self, evaluations: int, improvements: np.ndarray | None = None) -> None:
        """Count evaluations of the model; see `ConstructionGraph.charge`."""
        if self.meter is not None:
            self.meter(evaluations)
        self.evaluations += evaluations

    def latency(self, schedule: ChainSchedule) -> float:
        """Seconds by the model; infinite for an illegal schedule."""
        return float(self.latencies(schedule.row[None])[0])

    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of every row, float64 [B]; infinite for illegal ones."""
        self.charge(len(rows))
        seconds = np.full(len(rows), np.inf)
        legal = self.fits(rows)
        seconds[legal] = self.model.terms(rows[legal])[:, 0]
        return seconds

    def terms(self, schedule: ChainSchedule) -> dict[str, float]:
        """The parts of the latency in seconds, by name."""
        self.charge(1)
        return dict(zip(TERMS, self.model.terms(schedule.row[None])[0, 1:].tolist(), strict=True))

    def random_schedule(
        self, rng: np.random.Generator, steps: int | None = None, start: ChainSchedule | None = None
    ) -> ChainSchedule:
        """A legal schedule: any of the space where neither is given, else the end of a walk over random legal actions."""
        if steps is None and start is None:
            return ChainSchedule(self._all[rng.integers(len(self._all))])
        found = start or self.initial()
        for _ in range(self.horizon if steps is None else steps):
            found = self.transition(found, int(rng.choice(np.flatnonzero(self.action_mask(found)))))
        return found

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


def _applied(rows: np.ndarray) -> np.ndarray:
    """Rows int32 [B, ROW] after each of all actions, int32 [B, N, ROW]; an index that leaves its range stays."""
    found = np.repeat(rows[:, None, :], len(ACTIONS), axis=1)
    for place in range(ROW):
        found[:, 1 + 2 * place, place] = np.minimum(rows[:, place] + 1, TOPS[place])
        found[:, 2 + 2 * place, place] = np.maximum(rows[:, place] - 1, 0)
    return found
