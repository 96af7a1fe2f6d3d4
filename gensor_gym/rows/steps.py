"""Base class of construction graphs that apply all actions to all rows of a batch at once."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from gensor_gym.rows.fields import FieldSchedule
from gensor_gym.rows.graph import RowGraph

Node = TypeVar("Node", bound=FieldSchedule)
_MOST_MET = 4096
"""Number of schedules whose legal actions are cached."""


class RowModel(Protocol):
    """Interface of the analytic model of a graph: it predicts the time of schedules that are given as rows."""

    def terms(self, rows: np.ndarray) -> np.ndarray:
        """Predict the time of legal rows int32 [B, ROW], float64 [B, 1 + terms]: the total in seconds, then its terms."""


class StepGraph(RowGraph[Node]):
    """Base class of graphs that define all actions at once: masks, transitions and times follow from three members.

    Subclasses define `applied`, `fits` and `model`.
    """

    parts: ClassVar[tuple[str, ...]]
    """Names of the model's terms."""
    model: RowModel

    @abstractmethod
    def applied(self, rows: np.ndarray) -> np.ndarray:
        """Return the schedules after each action, int32 [B, N, ROW], given rows int32 [B, ROW].

        An action without effect leaves its row unchanged.
        """

    def may_follow(self, rows: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Return whether each legal row of `rows` int32 [B, ROW] may become the row of `after` by one action, bool [B]."""
        return self.fits(after)

    def action_masks(self, rows: np.ndarray) -> np.ndarray:
        """Return the masks of legal actions, bool [B, N]: `stop`, and the actions that change the row to a legal row."""
        after = self.applied(rows)
        legal: np.ndarray = np.any(after != rows[:, None, :], axis=2)
        places = np.nonzero(legal)
        legal[places] = self.may_follow(rows[places[0]], after[places])
        legal[:, 0] = True
        return legal

    def transitions(self, rows: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Take one action at each legal row, and return (resulting rows int32 [B, ROW], legality of the actions bool [B])."""
        after = self.applied(rows)[np.arange(len(rows)), actions]
        legal: np.ndarray = np.any(after != rows, axis=1)
        legal[legal] = self.may_follow(rows[legal], after[legal])
        return np.where(legal[:, None], after, rows), legal

    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """Predict the seconds of every row, float64 [B]; infinite for illegal rows."""
        self.charge(len(rows))
        seconds = np.full(len(rows), np.inf)
        legal = self.fits(rows)
        seconds[legal] = self.model.terms(rows[legal])[:, 0]
        return seconds

    def terms(self, schedule: Node) -> dict[str, float]:
        """Return the terms of a schedule's time by the model in seconds, by name."""
        self.charge(1)
        return dict(zip(self.parts, self.model.terms(schedule.row[None])[0, 1:].tolist(), strict=True))

    def walk(self, rng: np.random.Generator, start: Node, steps: int) -> Node:
        """Take `steps` random legal actions from `start`, and return the schedule reached.

        A schedule with no legal action but `stop` stays.
        """
        found = start
        for _ in range(steps):
            legal = self._legal_at(found)
            if len(legal):
                found = self.kind(self.applied(found.row[None])[0, int(rng.choice(legal))])
        return found

    def _legal_at(self, schedule: Node) -> np.ndarray:
        """Return the legal actions except `stop`, int64. They are cached: searches around a schedule ask for them repeatedly."""
        known = self._met.get(key := schedule.row.tobytes())
        if known is None:
            if len(self._met) >= _MOST_MET:
                self._met.clear()
            known = self._met[key] = np.flatnonzero(self.action_mask(schedule))[1:]
        return known

    @cached_property
    def _met(self) -> dict[bytes, np.ndarray]:
        """Legal actions of the schedules met so far, by the bytes of a schedule's row."""
        return {}
