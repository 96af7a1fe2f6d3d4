"""The graph of schedules of one task: methods that follow from the rules and the model, which subclasses define for rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np

from gensor_gym.rows.schedule import RowSchedule

Node = TypeVar("Node", bound=RowSchedule)


class RowGraph(ABC, Generic[Node]):
    """Nodes are schedules of one kind, single or rows int32 [B, ROW]; edges are its actions, the first of which stops."""

    actions: tuple[object, ...]
    kind: type[Node]
    """Class of the schedules."""
    meter: Callable[[int], None] | None = None
    """Told of every evaluation of the model before it is made, by a session that pays for them."""
    evaluations = 0
    """Evaluations of the model so far."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Steps of an episode on this task."""

    @abstractmethod
    def initial(self) -> Node:
        """The unscheduled program."""

    @abstractmethod
    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Which rows int32 [B, ROW] are within the limits of the hardware, bool [B]."""

    @abstractmethod
    def action_masks(self, rows: np.ndarray) -> np.ndarray:
        """Legal actions of every row, bool [B, N]. Rows must be legal."""

    @abstractmethod
    def transitions(self, rows: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(successors int32 [B, ROW], legal bool [B]) of one action for each row, which must be legal."""

    @abstractmethod
    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of every row by the model, float64 [B]; infinite for illegal ones."""

    @abstractmethod
    def terms(self, schedule: Node) -> dict[str, float]:
        """The parts of the latency in seconds, by name."""

    @abstractmethod
    def random_schedule(self, rng: np.random.Generator, steps: int | None = None, start: Node | None = None) -> Node:
        """A legal schedule: the end of a walk where `steps` or `start` is given."""

    @abstractmethod
    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """Every schedule of the space, in batches of rows int32 [<= batch, ROW]."""

    def schedule(self, row: np.ndarray) -> Node:
        """The schedule of a row int32 [ROW]."""
        return self.kind(row)

    def parse(self, text: str) -> Node:
        """The schedule of a text; ValueError if it does not read."""
        return self.kind.parse(text)

    def stack(self, schedules: list[Node]) -> np.ndarray:
        """Schedules as rows int32 [B, ROW]."""
        return np.stack([s.row for s in schedules]) if schedules else np.empty((0, self.kind.length), np.int32)

    def is_legal(self, schedule: Node) -> bool:
        """Whether the schedule is a node of this graph within the machine's limits."""
        return bool(self.fits(schedule.row[None])[0])

    def is_legal_once(self, schedule: Node) -> bool:
        """`is_legal` for a process that asks little else: it compiles nothing."""
        return self.is_legal(schedule)

    def action_mask(self, schedule: Node) -> np.ndarray:
        """Legal actions, bool [N]."""
        mask: np.ndarray = self.action_masks(schedule.row[None])[0]
        return mask

    def transition(self, schedule: Node, action: int) -> Node:
        """The successor; an illegal action, or `stop`, returns the schedule unchanged."""
        after, legal = self.transitions(schedule.row[None], np.array([action]))
        return self.kind(after[0]) if legal[0] else schedule

    def successors(self, schedule: Node) -> dict[int, Node]:
        """Legal actions except `stop`, each with the schedule it leads to."""
        legal = np.flatnonzero(self.action_mask(schedule))[1:]
        after, _ = self.transitions(np.repeat(schedule.row[None], len(legal), axis=0), legal)
        return {int(action): self.kind(row) for action, row in zip(legal, after, strict=True)}

    def charge(self, evaluations: int, improvements: np.ndarray | None = None) -> None:
        """Count evaluations of the model.

        `latency`, `latencies` and `terms` do so themselves; who runs compiled code that evaluates on tables charges for it.
        For those who watch a search (`agents.core.watched`) it may say which of the evaluations, counted from 1, were the fastest
        of them so far, and their seconds: `improvements` float64 [N, 2].
        """
        if self.meter is not None:
            self.meter(evaluations)
        self.evaluations += evaluations

    def latency(self, schedule: Node) -> float:
        """Seconds by the model; infinite for an illegal schedule."""
        return float(self.latencies(schedule.row[None])[0])
