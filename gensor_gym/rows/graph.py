"""Base class of construction graphs. Subclasses define rules and model for rows; all other methods follow from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np

from gensor_gym.rows.schedule import RowSchedule

Node = TypeVar("Node", bound=RowSchedule)


class RowGraph(ABC, Generic[Node]):
    """Base class of construction graphs: nodes are schedules, edges are actions, the first of them `stop`.

    All schedules have the class `kind`; many are passed together as rows int32 [B, ROW].
    """

    actions: tuple[object, ...]
    kind: type[Node]
    """Class of the schedules."""
    meter: Callable[[int], None] | None = None
    """Function that charges a search session for evaluations of the model. It is called with their number before they are
    made."""
    evaluations = 0
    """Number of evaluations of the model so far."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Maximum number of steps of an episode on this task."""

    @abstractmethod
    def initial(self) -> Node:
        """Return the schedule of the unscheduled program."""

    @abstractmethod
    def fits(self, rows: np.ndarray) -> np.ndarray:
        """Return whether each of the schedules `rows` int32 [B, ROW] is within the limits of the hardware, bool [B]."""

    @abstractmethod
    def action_masks(self, rows: np.ndarray) -> np.ndarray:
        """Return the masks of the actions that are legal at each row, bool [B, N]. Rows must be legal."""

    @abstractmethod
    def transitions(self, rows: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take one action at each legal row, and return (resulting rows int32 [B, ROW], legality of the actions bool [B])."""

    @abstractmethod
    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """Predict the seconds of every row by the model, float64 [B]; infinite for illegal rows."""

    @abstractmethod
    def terms(self, schedule: Node) -> dict[str, float]:
        """Return the terms of a schedule's time by the model in seconds, by name."""

    @abstractmethod
    def random_schedule(self, rng: np.random.Generator, steps: int | None = None, start: Node | None = None) -> Node:
        """Return a random legal schedule. With `steps` or `start` it is the end of a random walk."""

    @abstractmethod
    def enumerate(self, batch: int = 65536) -> Iterator[np.ndarray]:
        """Yield every schedule of the space, in batches of rows int32 [<= batch, ROW]."""

    def schedule(self, row: np.ndarray) -> Node:
        """Return a row int32 [ROW] as a schedule."""
        return self.kind(row)

    def parse(self, text: str) -> Node:
        """Return the schedule that `text` describes. ValueError if the text is invalid."""
        return self.kind.parse(text)

    def stack(self, schedules: list[Node]) -> np.ndarray:
        """Return schedules as rows int32 [B, ROW]."""
        return np.stack([s.row for s in schedules]) if schedules else np.empty((0, self.kind.length), np.int32)

    def is_legal(self, schedule: Node) -> bool:
        """Return whether a schedule is a node of the graph and within the machine's limits."""
        return bool(self.fits(schedule.row[None])[0])

    def is_legal_once(self, schedule: Node) -> bool:
        """Return whether a schedule is legal, like `is_legal`, without compiling anything. For a process that asks once."""
        return self.is_legal(schedule)

    def action_mask(self, schedule: Node) -> np.ndarray:
        """Return the mask of legal actions, bool [N]."""
        mask: np.ndarray = self.action_masks(schedule.row[None])[0]
        return mask

    def transition(self, schedule: Node, action: int) -> Node:
        """Return the schedule after an action. An illegal action, or `stop`, returns the schedule unchanged."""
        after, legal = self.transitions(schedule.row[None], np.array([action]))
        return self.kind(after[0]) if legal[0] else schedule

    def successors(self, schedule: Node) -> dict[int, Node]:
        """Return {action: schedule after it} for all legal actions except `stop`."""
        legal = np.flatnonzero(self.action_mask(schedule))[1:]
        after, _ = self.transitions(np.repeat(schedule.row[None], len(legal), axis=0), legal)
        return {int(action): self.kind(row) for action, row in zip(legal, after, strict=True)}

    def charge(self, evaluations: int, improvements: np.ndarray | None = None) -> None:
        """Count evaluations of the model, and charge them to the session that uses the graph.

        `latency`, `latencies` and `terms` call it; callers of compiled code that evaluates the model must call it themselves.
        `improvements` float64 [N, 2] is for observers of a search (`agents.core.watched`): the numbers, counted from 1, of the
        evaluations that were the fastest so far, and their seconds.
        """
        if self.meter is not None:
            self.meter(evaluations)
        self.evaluations += evaluations

    def latency(self, schedule: Node) -> float:
        """Predict the seconds of a schedule by the model; infinite for an illegal schedule."""
        return float(self.latencies(schedule.row[None])[0])
