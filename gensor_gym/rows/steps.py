"""Graphs whose actions are worked out for whole batches at once, all of them for every row."""

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
    """The analytic model of a graph."""

    def terms(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of legal rows int32 [B, ROW], their total first, float64 [B, 1 + terms]."""


class StepGraph(RowGraph[Node]):
    """A graph whose subclass defines transitions, legality and the model."""

    parts: ClassVar[tuple[str, ...]]
    """Names of the model's terms."""
    model: RowModel

    @abstractmethod
    def applied(self, rows: np.ndarray) -> np.ndarray:
        """Rows int32 [B, ROW] after each of all actions, int32 [B, N, ROW]; unchanged after one that leads nowhere."""

    def may_follow(self, rows: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Which of legal rows int32 [B, ROW] may become `after`, int32 [B, ROW], by one action: bool [B]."""
        return self.fits(after)

    def action_masks(self, rows: np.ndarray) -> np.ndarray:
        """Legal actions of every row, bool [B, N]: those that change it to a legal row, and `stop`."""
        after = self.applied(rows)
        legal: np.ndarray = np.any(after != rows[:, None, :], axis=2)
        places = np.nonzero(legal)
        legal[places] = self.may_follow(rows[places[0]], after[places])
        legal[:, 0] = True
        return legal

    def transitions(self, rows: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(successors int32 [B, ROW], legal bool [B]) of one action for each row, which must be legal."""
        after = self.applied(rows)[np.arange(len(rows)), actions]
        legal: np.ndarray = np.any(after != rows, axis=1)
        legal[legal] = self.may_follow(rows[legal], after[legal])
        return np.where(legal[:, None], after, rows), legal

    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of every row, float64 [B]; infinite for illegal ones."""
        self.charge(len(rows))
        seconds = np.full(len(rows), np.inf)
        legal = self.fits(rows)
        seconds[legal] = self.model.terms(rows[legal])[:, 0]
        return seconds

    def terms(self, schedule: Node) -> dict[str, float]:
        """The parts of the latency in seconds, by name."""
        self.charge(1)
        return dict(zip(self.parts, self.model.terms(schedule.row[None])[0, 1:].tolist(), strict=True))

    def walk(self, rng: np.random.Generator, start: Node, steps: int) -> Node:
        """The end of a walk over random legal actions, as long as there is one but `stop`."""
        found = start
        for _ in range(steps):
            legal = self._legal_at(found)
            if len(legal):
                found = self.kind(self.applied(found.row[None])[0, int(rng.choice(legal))])
        return found

    def _legal_at(self, schedule: Node) -> np.ndarray:
        """Legal actions but `stop`, int64; searches that walk around one schedule ask again and again."""
        known = self._met.get(key := schedule.row.tobytes())
        if known is None:
            if len(self._met) >= _MOST_MET:
                self._met.clear()
            known = self._met[key] = np.flatnonzero(self.action_mask(schedule))[1:]
        return known

    @cached_property
    def _met(self) -> dict[bytes, np.ndarray]:
        """Cache of the schedules that walks met."""
        return {}
