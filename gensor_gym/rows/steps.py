"""Base class of graphs that apply all actions to all rows of a batch at once."""

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
        """Seconds of legal rows int32 [B, ROW], then their terms: float64 [B, 1 + terms]."""


class StepGraph(RowGraph[Node]):
    """A graph whose subclasses define `applied`, `fits` and `model`. Masks, transitions and latencies follow."""

    parts: ClassVar[tuple[str, ...]]
    """Names of the model's terms."""
    model: RowModel

    @abstractmethod
    def applied(self, rows: np.ndarray) -> np.ndarray:
        """Rows int32 [B, ROW] after each action, int32 [B, N, ROW]. An action without effect leaves its row unchanged."""

    def may_follow(self, rows: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Whether one action may change each legal row of `rows` int32 [B, ROW] to the row of `after`, bool [B]."""
        return self.fits(after)

    def action_masks(self, rows: np.ndarray) -> np.ndarray:
        """Mask of legal actions of every row, bool [B, N]: `stop`, and actions that change the row to a legal row."""
        after = self.applied(rows)
        legal: np.ndarray = np.any(after != rows[:, None, :], axis=2)
        places = np.nonzero(legal)
        legal[places] = self.may_follow(rows[places[0]], after[places])
        legal[:, 0] = True
        return legal

    def transitions(self, rows: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For one action per legal row: successors int32 [B, ROW], and whether the action is legal, bool [B]."""
        after = self.applied(rows)[np.arange(len(rows)), actions]
        legal: np.ndarray = np.any(after != rows, axis=1)
        legal[legal] = self.may_follow(rows[legal], after[legal])
        return np.where(legal[:, None], after, rows), legal

    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of every row, float64 [B]; infinite for illegal rows."""
        self.charge(len(rows))
        seconds = np.full(len(rows), np.inf)
        legal = self.fits(rows)
        seconds[legal] = self.model.terms(rows[legal])[:, 0]
        return seconds

    def terms(self, schedule: Node) -> dict[str, float]:
        """Terms of the latency in seconds, by name."""
        self.charge(1)
        return dict(zip(self.parts, self.model.terms(schedule.row[None])[0, 1:].tolist(), strict=True))

    def walk(self, rng: np.random.Generator, start: Node, steps: int) -> Node:
        """The end of a walk of `steps` random legal actions. A row with no legal action but `stop` stays."""
        found = start
        for _ in range(steps):
            legal = self._legal_at(found)
            if len(legal):
                found = self.kind(self.applied(found.row[None])[0, int(rng.choice(legal))])
        return found

    def _legal_at(self, schedule: Node) -> np.ndarray:
        """Legal actions except `stop`, int64. They are cached, because searches around a schedule ask for them repeatedly."""
        known = self._met.get(key := schedule.row.tobytes())
        if known is None:
            if len(self._met) >= _MOST_MET:
                self._met.clear()
            known = self._met[key] = np.flatnonzero(self.action_mask(schedule))[1:]
        return known

    @cached_property
    def _met(self) -> dict[bytes, np.ndarray]:
        """Legal actions by bytes of a row."""
        return {}
