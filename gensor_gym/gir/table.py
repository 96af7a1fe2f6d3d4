"""A whole space of schedules as tables: each schedule has a number, and what is legal and how long it takes is looked up.

Spaces of fused operators are small. A table of one is made in less than a second, steps of thousands of environments are then
a few look-ups, and the optimum is the least entry: every task is certified by having been gone through.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from gensor_gym.gir.actions import ACTIONS, NUM_ACTIONS, STOP
from gensor_gym.gir.graph import LARGEST, GirGraph
from gensor_gym.gir.model import TERMS
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import FIELD_INDEX, FIELDS, HEADER, ROW, GirSchedule

_BATCH = 1 << 16


def table_of(graph: GirGraph) -> GirTable:
    """The table of a graph, made once and kept with it; ValueError where the space is too large."""
    if graph.kept_table is None:
        graph.kept_table = GirTable(graph)
    return graph.kept_table


class GirTable:
    """The space of one graph."""

    def __init__(self, graph: GirGraph) -> None:
        """ValueError for a space that is too large to be gone through."""
        if graph.size > LARGEST:
            raise ValueError(f"{graph.operator}: {graph.size} schedules, a table takes at most {LARGEST}")
        self.graph = graph
        self.counts = np.array([*(len(field.values) for field in FIELDS), *(len(Level) for _ in graph.nest.crossing)])
        self.strides = np.append(np.cumprod(self.counts[::-1])[-2::-1], 1)
        self.legal = np.zeros(graph.size, bool)
        self.terms = np.full((graph.size, 1 + len(TERMS)), np.inf)
        """Seconds of the model, their total first, float64 [S, 1 + terms]; infinite for illegal schedules."""
        self.bytes = np.zeros(graph.size, np.int64)
        """Bytes that are moved (`GirGraph.moved_bytes`)."""
        for start in range(0, graph.size, _BATCH):
            chosen = np.arange(start, min(start + _BATCH, graph.size))
            rows = self.rows(chosen)
            legal = graph.fits(rows)
            self.legal[chosen] = legal
            self.terms[chosen[legal]] = graph.model.terms(rows[legal])
            self.bytes[chosen[legal]] = graph.moved_bytes(rows[legal])

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Numbers int64 [B] of rows int32 [B, ROW]."""
        found: np.ndarray = rows[:, : len(self.counts)].astype(np.int64) @ self.strides
        return found

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Rows int32 [B, ROW] of numbers int64 [B]."""
        found = np.zeros((len(numbers), ROW), np.int32)
        found[:, : len(self.counts)] = self._digits(numbers)
        return found

    def _digits(self, numbers: np.ndarray) -> np.ndarray:
        digits: np.ndarray = numbers[:, None] // self.strides % self.counts
        return digits

    @cached_property
    def _moves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every action (digit that it changes, by how much, to what): one of the last two is none, -1 or 0."""
        digit, by, to = (np.zeros(NUM_ACTIONS, np.int64) for _ in range(3))
        to[:] = -1
        for number, action in enumerate(ACTIONS[1:], 1):
            if action.primitive == "place":
                digit[number], to[number] = min(HEADER + action.cell, len(self.counts) - 1), action.level
                to[number] = -2 if action.cell >= len(self.counts) - HEADER else to[number]
            else:
                digit[number], by[number] = FIELD_INDEX[action.target], 1 if action.primitive == "raise" else -1
        return digit, by, to

    def successors(self, numbers: np.ndarray) -> np.ndarray:
        """The schedule after each action, int64 [B, NUM_ACTIONS]; the same where the action changes nothing."""
        return self.after(numbers[:, None], np.arange(NUM_ACTIONS)[None])

    def after(self, numbers: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The schedules after actions, int64 as both broadcast together; the same where an action changes nothing."""
        digit, by, to = (part[actions] for part in self._moves)
        now = numbers // self.strides[digit] % self.counts[digit]
        after = np.where(to >= 0, to, now + by)
        stays = (to == -2) | (after < 0) | (after >= self.counts[digit])
        found: np.ndarray = numbers + np.where(stays, 0, after - now) * self.strides[digit]
        return found

    def masks(self, numbers: np.ndarray) -> np.ndarray:
        """Legal actions bool [B, NUM_ACTIONS]: those that change a schedule to a legal one of the space, and `stop`."""
        after = self.successors(numbers)
        legal = (after != numbers[:, None]) & self.legal[after]
        if self.graph.space == "monotone":
            legal &= self.bytes[after] <= self.bytes[numbers][:, None]
        legal[:, STOP] = True
        return legal

    @property
    def seconds(self) -> np.ndarray:
        """Seconds of the model float64 [S], infinite for illegal schedules."""
        return self.terms[:, 0]

    @cached_property
    def reachable(self) -> np.ndarray:
        """Which schedules some way of legal actions leads to from the unscheduled program, bool [S]."""
        found = np.zeros(len(self.legal), bool)
        front = np.zeros(1, np.int64)
        while len(front):
            found[front] = True
            after = self.successors(front)[self.masks(front)]
            front = np.unique(after[~found[after]])
        return found

    @cached_property
    def optimum(self) -> tuple[GirSchedule, float]:
        """The fastest schedule that can be reached, and its seconds."""
        seconds = np.where(self.reachable, self.seconds, np.inf)
        best = int(seconds.argmin())
        return GirSchedule(self.rows(np.array([best]))[0]), float(seconds[best])
