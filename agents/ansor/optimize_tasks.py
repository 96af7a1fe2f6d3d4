"""Search for fast kernels of several operators of networks within one budget of trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from agents.ansor.ansor import Ansor, Rounds
from agents.ansor.task_scheduler import GradientScheduler, Objective, Progress, Scheduler, total_latency
from agents.optimizer import Result
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.session import Budget, BudgetSpent, Session, Task
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class TasksResult:
    """Result of `optimize_tasks`: the best program of every operator, and how the batches of trials were distributed."""

    results: tuple[Result | None, ...]
    """Result of every operator; None for an operator whose kernels all failed."""
    order: tuple[int, ...]
    """For every batch, the index of the operator that it was spent on."""
    objective: tuple[float, ...]
    """Value of the objective after every batch; infinite until every operator has a program."""
    trials: tuple[int, ...]
    """Total number of trials spent after every batch."""


def optimize_tasks(
    operators: Sequence[Operator | str],
    hardware: Hardware | str = "host",
    trials: int = 512,
    weights: Sequence[float] | np.ndarray | None = None,
    objective: Objective | None = None,
    strategy: Ansor | None = None,
    scheduler: Callable[[Objective], Scheduler] = GradientScheduler,
    early_stopping: int | None = None,
    seed: int = 0,
    backend: str | Backend = "auto",
    store: str | None = None,
) -> TasksResult:
    """Search several operators with `trials` distinct measured programs in total and one learned model for all.

    `weights` [n] says how often each of the n operators occurs in a network, or [networks, n] in several networks; None counts
    each operator once. `objective` is a function of `agents.ansor.task_scheduler` that the scheduler minimises, by default the
    total latency with these weights. An operator whose latency has not decreased in `early_stopping` trials gets no more trials.
    ValueError for no operators, unknown or repeated operators, and invalid numbers.
    """
    chosen = strategy or Ansor()
    tasks = [Task.of(operator, hardware, backend, chosen.space) for operator in operators]
    _check(tasks, trials, early_stopping)
    table = np.ones(len(tasks)) if weights is None else np.asarray(weights, dtype=np.float64)
    if table.shape[-1] != len(tasks):
        raise ValueError(f"weights of {table.shape[-1]} tasks for {len(tasks)} operators")
    aim = objective or total_latency(table)
    searches = _searches(chosen, tasks, trials, seed, store)
    batches = _spend(searches, scheduler(aim), aim, trials, early_stopping, np.random.default_rng(seed))
    order, curve, spent = zip(*batches, strict=True) if batches else ((), (), ())
    return TasksResult(tuple(_result(search.session) for search in searches), order, curve, spent)


def _check(tasks: list[Task], trials: int, early_stopping: int | None) -> None:
    names = [str(task.operator) for task in tasks]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"operators {names}: expected one or more, each once (weights say how often it appears)")
    if trials < len(names):
        raise ValueError(f"{trials} trials for {len(names)} tasks: expected at least one each")
    if early_stopping is not None and early_stopping < 1:
        raise ValueError(f"early_stopping={early_stopping}: expected 1 or more trials, or None")


def _searches(chosen: Ansor, tasks: list[Task], trials: int, seed: int, store: str | None) -> list[Rounds]:
    model = chosen.model()
    seeds = np.random.SeedSequence(seed).spawn(len(tasks))
    sessions = [Session(task, Budget(trials=trials), store) for task in tasks]
    return [chosen.rounds(s, np.random.default_rng(own), model) for s, own in zip(sessions, seeds, strict=True)]


def _spend(
    searches: list[Rounds],
    scheduler: Scheduler,
    aim: Objective,
    trials: int,
    early_stopping: int | None,
    rng: np.random.Generator,
) -> list[tuple[int, float, int]]:
    """Give batches of trials to the searches until the trials are spent or no search may get more.

    Return (index of the search, objective after the batch, total trials after the batch) for each batch.
    """
    operators = [search.session.task.operator for search in searches]
    progress = [Progress(float(op.flops), op.name) for op in operators]
    unit = max(1, min(searches[0].settings.batch, trials // len(searches)))
    batches: list[tuple[int, float, int]] = []
    while (left := trials - sum(search.session.trials for search in searches)) > 0:
        number = scheduler.choose(progress, rng)
        if number is None:
            break
        new = _advance(searches[number], min(unit, left))
        best = searches[number].session.best
        progress[number].record(np.inf if best is None else best[1].seconds, new, early_stopping)
        latencies = np.array([task.latency for task in progress])
        after = aim(latencies) if np.isfinite(latencies).all() else np.inf
        batches.append((number, after, sum(search.session.trials for search in searches)))
    return batches


def _advance(search: Rounds, limit: int) -> int:
    before = search.session.trials
    with suppress(BudgetSpent):
        search.advance(limit)
    return search.session.trials - before


def _result(session: Session) -> Result | None:
    if session.best is None:
        return None
    return Result(*session.best, tuple(session.trace), session.task)
