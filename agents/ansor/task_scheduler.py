"""Ansor's task scheduler (section 6, appendix A), which decides which of many tasks gets the next batch of trials.

The objective f is a function of the tasks' best latencies g. The task i with the largest |df/dt_i| is chosen, with

    df/dt_i = df/dg_i (alpha (g_i(t_i) - g_i(t_i - w)) / w + (1 - alpha) min(-g_i / t_i, beta C_i / max V_k - g_i))

Here t_i is the number of batches of the task, w the backward window, C_i its number of operations, and V_k the operations per
second that similar tasks reach. Constants are those of the authors' code (TVM v0.8, `task_scheduler.py`), except epsilon, which
is our choice. Formulas of the objectives are reconstructed from the paper's text (its table 2 is an image).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


class Scheduler(Protocol):
    """Interface of a rule that chooses the task whose search gets the next batch of trials."""

    def choose(self, tasks: list[Progress], rng: np.random.Generator) -> int | None:
        """Return the index of the chosen task; None if all tasks are dead (get no more batches)."""


Objective = Callable[[np.ndarray], float]
"""Function of the tasks' best latencies float64 [n] that is to be minimised."""
STEP = 1e-4
"""Relative step of the finite difference for df/dg."""
GROUP = 1.618
"""Base of the logarithm that groups tasks by size.

Tasks of one operator class are similar if log_1.618 of their numbers of operations has the same integer part.
"""
PATIENT = 5
"""A task may leave its group as too slow once it has had this many batches more than every other task of the group."""


def total_latency(weights: np.ndarray) -> Objective:
    """Return objective f1: the total latency of all networks.

    `weights` [networks, n] says how often each of the n tasks occurs in each network.
    """
    return lambda g: float((_appearances(weights) @ g).sum())


def latency_targets(weights: np.ndarray, targets: np.ndarray) -> Objective:
    """Return objective f2: the sum over networks of max(latency, target), so that being faster than the target gains nothing."""
    return lambda g: float(np.maximum(_appearances(weights) @ g, targets).sum())


def geometric_speedup(weights: np.ndarray, baselines: np.ndarray) -> Objective:
    """Return objective f3: minus the geometric mean of the networks' speed-ups, which are baseline / latency."""
    return lambda g: -float(np.exp(np.mean(np.log(baselines / (_appearances(weights) @ g)))))


def _appearances(weights: np.ndarray) -> np.ndarray:
    table = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    if (table < 0).any():
        raise ValueError(f"appearances of tasks in networks must not be negative, got {table.min()}")
    return table


@dataclass
class Progress:
    """Progress of one task: its operator's class and number of operations, and the best latency after every batch.

    The latency is infinite as long as no program has run.
    """

    flops: float
    kind: str
    best: list[float] = field(default_factory=list)
    dead: bool = False
    """Whether the task gets no more batches: a batch had no new trial, or early stopping applies (ES of the paper's f4)."""
    trials: int = 0
    last_gain: int = 0
    """Number of trials when the latency last decreased."""

    @property
    def latency(self) -> float:
        """Latency of the best program so far, in seconds; infinite before the first batch."""
        return self.best[-1] if self.best else math.inf

    def record(self, latency: float, new_trials: int, early_stopping: int | None) -> None:
        """Record one batch: the best latency that it measured, and its number of new trials.

        The task is dead (gets no more batches) after a batch without a new trial, or `early_stopping` trials after its latency
        last decreased.
        """
        self.trials += new_trials
        if latency < self.latency:
            self.last_gain = self.trials
        self.best.append(min(latency, self.latency))
        stalled = early_stopping is not None and self.trials - self.last_gain >= early_stopping
        self.dead = self.dead or new_trials == 0 or stalled


@dataclass(frozen=True)
class GradientScheduler:
    """Ansor's scheduler: every task gets one batch, in order; then the task with the largest gradient gets the next batch."""

    objective: Objective
    alpha: float = 0.2
    beta: float = 2.0
    window: int = 3
    epsilon: float = 0.05
    """Probability that the next task is drawn uniformly at random instead of by gradient."""

    def __post_init__(self) -> None:
        if not (0 <= self.alpha <= 1 and 0 <= self.epsilon <= 1 and self.beta > 0 and self.window >= 1):
            raise ValueError(
                f"alpha={self.alpha}, epsilon={self.epsilon}, beta={self.beta}, window={self.window}: expected the first two "
                "within [0, 1], the third positive, the last 1 or more"
            )

    def choose(self, tasks: list[Progress], rng: np.random.Generator) -> int | None:
        """Return the index of the task for the next batch; None if all tasks are dead (get no more batches)."""
        alive = [i for i, task in enumerate(tasks) if not task.dead]
        for i in alive:
            if not tasks[i].best:
                return i
        if not alive:
            return None
        if rng.random() < self.epsilon:
            return alive[int(rng.integers(len(alive)))]
        unborn = [i for i in alive if not math.isfinite(tasks[i].latency)]
        if unborn:  # the objective is not defined before every task has a program
            return min(unborn, key=lambda i: len(tasks[i].best))
        size = np.abs(self.gradients(tasks))[alive]
        ties = np.flatnonzero(size == size.max())
        return alive[int(ties[int(rng.integers(len(ties)))])]

    def gradients(self, tasks: list[Progress]) -> np.ndarray:
        """Return the gradient of the objective by the batches of each task, float64 [n].

        It is zero for dead tasks (which get no more batches) and for tasks without a program.
        """
        latencies = np.array([task.latency for task in tasks])
        known = np.where(np.isfinite(latencies), latencies, 0.0)
        members = groups_of(tasks, self.beta)
        result = np.zeros(len(tasks))
        for i, task in enumerate(tasks):
            if task.dead or not math.isfinite(task.latency):
                continue
            slope = self._chain(known, i)
            result[i] = slope * (self.alpha * self._backward(task) + (1 - self.alpha) * self._forward(tasks, i, members))
        return result

    def _chain(self, latencies: np.ndarray, i: int) -> float:
        less = latencies.copy()
        less[i] *= 1 - STEP
        return (self.objective(latencies) - self.objective(less)) / (STEP * latencies[i])

    def _backward(self, task: Progress) -> float:
        """Return a task's mean change of latency per batch over the last `window` batches; 0 in the first `window` batches."""
        if len(task.best) <= self.window or not math.isfinite(task.best[-1 - self.window]):
            return 0.0
        return (task.best[-1] - task.best[-1 - self.window]) / self.window

    def _forward(self, tasks: list[Progress], i: int, members: list[int | None]) -> float:
        """Estimate by how much one more batch changes the latency of task `i`, a negative number of seconds.

        The estimate is -latency / batches or, if that is lower, the change to the latency that the speed of similar tasks
        promises. Similar tasks have the same group number in `members`.
        """
        task = tasks[i]
        gain = -task.latency / len(task.best)
        alike = [t for k, t in enumerate(tasks) if members[i] is not None and members[k] == members[i]]
        speeds = [t.flops / t.latency for t in alike if math.isfinite(t.latency)]
        if len(alike) < 2 or not speeds:
            return gain
        return min(gain, self.beta * task.flops / max(speeds) - task.latency)


@dataclass(frozen=True)
class RoundRobin:
    """Scheduler that gives batches to the tasks in turn: the paper's ablation (figure 10).

    An objective is accepted but not used.
    """

    objective: Objective

    def choose(self, tasks: list[Progress], rng: np.random.Generator) -> int | None:
        """Return the index of the first live task with the fewest batches; None if all tasks are dead (get no more batches)."""
        alive = [i for i, task in enumerate(tasks) if not task.dead]
        return min(alive, key=lambda i: len(tasks[i].best), default=None)


def groups_of(tasks: list[Progress], beta: float) -> list[int | None]:
    """Assign tasks of similar size and equal operator class to groups; return each task's group number.

    The number is None for a task that has left its group, because it stays more than `beta` times slower than the group's
    fastest.
    """
    keys = [(task.kind, int(math.log(task.flops + 1, GROUP))) for task in tasks]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    found: list[int | None] = [numbers[key] for key in keys]
    for i, task in enumerate(tasks):
        others = [t for k, t in enumerate(tasks) if k != i and keys[k] == keys[i]]
        speeds = [t.flops / t.latency for t in others if math.isfinite(t.latency)]
        slow = bool(speeds) and task.flops / task.latency < max(speeds) / beta
        if slow and len(task.best) > PATIENT + max(len(t.best) for t in others):
            found[i] = None
    return found
