"""Ansor's task scheduler (section 6, appendix A): which of many tasks gets the next batch of trials.

The objective f is a function of the tasks' best latencies g. Task i is chosen that has the largest |df/dt_i|, with

    df/dt_i = df/dg_i (alpha (g_i(t_i) - g_i(t_i - w)) / w + (1 - alpha) min(-g_i / t_i, beta C_i / max V_k - g_i))

t_i batches given to the task, w the backward window, C_i its operations, V_k operations per second that tasks like it
reach. Constants are those of the authors' code (TVM v0.8, `task_scheduler.py`); the paper does not give epsilon, so its
value is our choice. Formulas of the objectives are reconstructed from the paper's text (its table 2 is an image).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np


class Scheduler(Protocol):
    """Says which task gets the next batch."""

    def choose(self, tasks: list[Progress], rng: np.random.Generator) -> int | None:
        """Number of the chosen task; None if all are dead."""


Objective = Callable[[np.ndarray], float]
"""A number to make small, from best latencies float64 [n]."""
STEP = 1e-4
"""Relative step of the finite difference for df/dg."""
GROUP = 1.618
"""Tasks of one operator class are alike when log_1.618 of their operations agrees as a whole number."""
PATIENT = 5
"""Batches a task must have had more than any other before it leaves its group as too slow."""


def total_latency(weights: np.ndarray) -> Objective:
    """f1: the sum over networks of the sum over tasks of appearances [networks, n] times latency."""
    return lambda g: float((_appearances(weights) @ g).sum())


def latency_targets(weights: np.ndarray, targets: np.ndarray) -> Objective:
    """f2: the sum over networks of max(latency, target): below its target [networks] a network gains nothing."""
    return lambda g: float(np.maximum(_appearances(weights) @ g, targets).sum())


def geometric_speedup(weights: np.ndarray, baselines: np.ndarray) -> Objective:
    """f3: minus the geometric mean over networks of baseline [networks] / latency."""
    return lambda g: -float(np.exp(np.mean(np.log(baselines / (_appearances(weights) @ g)))))


def _appearances(weights: np.ndarray) -> np.ndarray:
    """Weights as [networks, n]; ValueError for negative ones."""
    table = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    if (table < 0).any():
        raise ValueError(f"appearances of tasks in networks must not be negative, got {table.min()}")
    return table


@dataclass
class Progress:
    """Progress of a task: its operations, its class, and its best latency after every batch (infinite: none ran)."""

    flops: float
    kind: str
    best: list[float] = field(default_factory=list)
    dead: bool = False
    """No new program is found, or the patience of early stopping is over: f4's ES(g_i, t) is its latency for good."""
    trials: int = 0
    last_gain: int = 0
    """Trials when its latency last fell."""

    @property
    def latency(self) -> float:
        """Seconds of the best program so far."""
        return self.best[-1] if self.best else math.inf

    def record(self, latency: float, new_trials: int, early_stopping: int | None) -> None:
        """Record one batch. Without a new trial, or `early_stopping` trials after the last gain, the task is dead."""
        self.trials += new_trials
        if latency < self.latency:
            self.last_gain = self.trials
        self.best.append(min(latency, self.latency))
        stalled = early_stopping is not None and self.trials - self.last_gain >= early_stopping
        self.dead = self.dead or new_trials == 0 or stalled


@dataclass(frozen=True)
class GradientScheduler:
    """Chooses tasks. Every task gets one batch first, in order."""

    objective: Objective
    alpha: float = 0.2
    beta: float = 2.0
    window: int = 3
    epsilon: float = 0.05
    """Chance of a task drawn uniformly instead."""

    def __post_init__(self) -> None:
        """ValueError for numbers that make no gradient."""
        if not (0 <= self.alpha <= 1 and 0 <= self.epsilon <= 1 and self.beta > 0 and self.window >= 1):
            raise ValueError(
                f"alpha={self.alpha}, epsilon={self.epsilon}, beta={self.beta}, window={self.window}: expected the first two "
                "within [0, 1], the third positive, the last 1 or more"
            )

    def choose(self, tasks: list[Progress], rng: np.random.Generator) -> int | None:
        """Number of the task for the next batch; None if all are dead."""
        alive = [i for i, task in enumerate(tasks) if not task.dead]
        for i in alive:
            if not tasks[i].best:
                return i
        if not alive:
            return None
        if rng.random() < self.epsilon:
            return alive[int(rng.integers(len(alive)))]
        unborn = [i for i in alive if not math.isfinite(tasks[i].latency)]
        if unborn:  # an objective means nothing before every task has a program
            return min(unborn, key=lambda i: len(tasks[i].best))
        size = np.abs(self.gradients(tasks))[alive]
        ties = np.flatnonzero(size == size.max())
        return alive[int(ties[int(rng.integers(len(ties)))])]

    def gradients(self, tasks: list[Progress]) -> np.ndarray:
        """df/dt of every task, float64 [n]; zero for the dead ones. Tasks without any program count as never."""
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
        """df/dg_i."""
        less = latencies.copy()
        less[i] *= 1 - STEP
        return (self.objective(latencies) - self.objective(less)) / (STEP * latencies[i])

    def _backward(self, task: Progress) -> float:
        """Gain of the latest batches; 0 before there are enough."""
        if len(task.best) <= self.window or not math.isfinite(task.best[-1 - self.window]):
            return 0.0
        return (task.best[-1] - task.best[-1 - self.window]) / self.window

    def _forward(self, tasks: list[Progress], i: int, members: list[int | None]) -> float:
        """Expected gain of a batch: all of the latency in as many batches as so far, or the level of similar tasks."""
        task = tasks[i]
        gain = -task.latency / len(task.best)
        alike = [t for k, t in enumerate(tasks) if members[i] is not None and members[k] == members[i]]
        speeds = [t.flops / t.latency for t in alike if math.isfinite(t.latency)]
        if len(alike) < 2 or not speeds:
            return gain
        return min(gain, self.beta * task.flops / max(speeds) - task.latency)


@dataclass(frozen=True)
class RoundRobin:
    """The paper's ablation without a scheduler (figure 10): every task in turn. Takes the objective and does not use it."""

    objective: Objective

    def choose(self, tasks: list[Progress], rng: np.random.Generator) -> int | None:
        """The first live task with the fewest batches; None if all are dead."""
        alive = [i for i, task in enumerate(tasks) if not task.dead]
        return min(alive, key=lambda i: len(tasks[i].best), default=None)


def groups_of(tasks: list[Progress], beta: float) -> list[int | None]:
    """Group number of every task, None for one that left its group since it stays slower than others by more than beta."""
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
