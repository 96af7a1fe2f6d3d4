"""Evaluate a learned policy on any programs of a task: probabilities of actions, values, and the best observed programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.learners.registry import Learner
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env import process
from gensor_gym.env.episodes.scalars import LATENCY, NUM_SCALARS
from gensor_gym.env.observation import NUM_FEATURES
from gensor_gym.env.tasks import TaskSet
from gensor_gym.graph.actions import NUM_ACTIONS, STOP
from gensor_gym.graph.compiled import plain
from gensor_gym.graph.tables.tables import HORIZON


@dataclass(frozen=True)
class Answer:
    """A policy's outputs for B programs (probabilities of N actions, values), and the programs' times by the model."""

    chances: np.ndarray
    """Log-probabilities of actions, float [B, N]; -inf for illegal actions."""
    values: np.ndarray
    """Expected return from each program, float [B], in the scale of `agents.learners.observed`."""
    seconds: np.ndarray
    """Model seconds of the programs, float [B]."""
    nearest: np.ndarray
    """Model seconds of the fastest program that is observed from each program, float [B]. A program also observes itself."""


class Guide:
    """Evaluates a policy on programs of one task; evaluations of the analytic model are charged to the graph."""

    def __init__(self, learner: Learner, model: object, graph: ConstructionGraph, retain: int = 4) -> None:
        """Prepare the evaluation; the `retain` fastest programs observed from each evaluated program are remembered."""
        self.learner, self.model, self.graph, self.retain = learner, model, graph, retain
        self.tasks = TaskSet(graph.operator, graph.hardware, graph.space)
        self._rows: list[np.ndarray] = []
        self._seconds: list[np.ndarray] = []

    def ask(self, rows: np.ndarray, steps: int) -> Answer:
        """Evaluate the policy on encoded programs `rows` [B, ROW], with `steps` steps left in an episode."""
        placed = Placed(self.tasks, rows, steps)
        observer = self.learner.observer(placed, self.retain, self.graph.charge)
        observed = observer.observe(placed.flat, np.zeros(len(rows), dtype=np.bool_))
        found, seconds = observer.programs()
        self._rows.append(found)
        self._seconds.append(seconds)
        logits = self.learner.logits(self.model, observed, placed.action_masks())
        chances = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return Answer(chances, self.learner.values(self.model, observed), placed.seconds, observer.seconds[:, 0])

    def programs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all remembered programs: rows int32 [P, ROW], model seconds [P]."""
        return np.concatenate(self._rows), np.concatenate(self._seconds)


class Placed:
    """Any programs of one task, with the attributes of running environments that an observer reads.

    `flat` float32 [B, F] is their flat observation.
    """

    def __init__(self, tasks: TaskSet, rows: np.ndarray, steps: int | np.ndarray) -> None:
        """Compute the observations and masks of encoded programs `rows` [B, ROW].

        `steps` is the number of steps left, one for all programs or one for each.
        """
        rows, count = plain(rows), len(rows)
        self.tasks, self.num_envs, self.rows = tasks, count, rows
        self.task_indices = np.zeros(count, dtype=np.int64)
        self.flat, self._masks = np.zeros((count, NUM_FEATURES), dtype=np.float32), np.zeros((count, NUM_ACTIONS), np.int8)
        scalars = np.zeros((count, NUM_SCALARS))
        process.begin_range(
            np.arange(count), self.task_indices, rows, scalars, tasks.ints, tasks.floats, tasks.sizes, tasks.static,
            tasks.initial, tasks.starts, tasks.room(), self._masks, self.flat,
        )  # fmt: skip
        self.seconds = scalars[:, LATENCY]
        left = np.broadcast_to(np.asarray(steps, dtype=float), (count,))
        self.flat[:, process.REMAINING_AT] = left / tasks.ints[0, HORIZON]
        self.flat[:, process.REMAINING_AT + 1] = np.log2(left + 1.0) / 8.0
        self._masks[left <= 1] = np.arange(NUM_ACTIONS) == STOP

    def action_masks(self) -> np.ndarray:
        """Return which actions are legal in each program, bool [B, N]."""
        return self._masks.astype(bool)
