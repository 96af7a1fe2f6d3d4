"""What a study of transfer between recorded GPUs found: regrets over tasks and seeds, with their intervals."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.statistics import paired
from experiments.studies.intervals import interval, mean
from experiments.studies.transfer_recorded.plan import (
    ANOTHER,
    BEST_OF,
    FROM_BEST,
    MEMORISED,
    OTHERS,
    POLICY_OF,
    RecordedPlan,
    Task,
)
from experiments.studies.transfer_recorded.searches import regrets
from gensor_gym.spaces import load_space

BEST_OF_ANOTHER = BEST_OF + "another"


class Scores:
    """Regrets [seeds, K] of every search of every task."""

    def __init__(self, plan: RecordedPlan, rows: Sequence[dict[str, Any]]) -> None:
        """From the lines of all searches."""
        self.plan = plan
        found: dict[tuple[str, str, str], dict[int, np.ndarray]] = {}
        for row in rows:
            space = load_space(plan.file(row["kernel"], row["device"]))
            times = space.seconds(plan.timing)
            values = regrets(row["curves"], list(plan.checkpoints), float(times.min()), float(times[space.ok].max()))
            found.setdefault((row["kernel"], row["device"], row["name"]), {})[row["seed"]] = values
        self._found = found

    def of(self, task: Task, name: str) -> np.ndarray:
        """Of a search by its own name; what was begun once counts for every seed."""
        by_seed = self._found[task.kernel, task.device, name]
        return np.stack([by_seed.get(seed, by_seed[min(by_seed)]) for seed in self.plan.seeds])

    def names(self, task: Task) -> list[str]:
        """All searches of a task."""
        return [name for kernel, device, name in self._found if (kernel, device) == (task.kernel, task.device)]

    def role(self, task: Task, name: str) -> np.ndarray:
        """Of a search by what it is to the tested device; of policies or orders of another device their mean."""
        if name == MEMORISED:
            return self.of(task, POLICY_OF + task.device)
        if name in (ANOTHER, BEST_OF_ANOTHER):
            prefix = POLICY_OF if name == ANOTHER else BEST_OF
            return np.mean([self.of(task, prefix + device) for device in self.plan.elsewhere(task)], axis=0)
        return self.of(task, name)

    def stacked(self, tasks: Sequence[Task], name: str) -> np.ndarray:
        """[tasks, seeds, K] of a role."""
        return np.stack([self.role(task, name) for task in tasks])


def roles(plan: RecordedPlan) -> list[str]:
    """What can be asked of every task."""
    return [MEMORISED, ANOTHER, POLICY_OF + OTHERS, FROM_BEST, BEST_OF_ANOTHER, BEST_OF + OTHERS, *plan.strategies]


def summarise(plan: RecordedPlan, rows: Sequence[dict[str, Any]], cards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Plain values; see `experiments.studies.transfer_recorded.report` for how they are to be read."""
    scores = Scores(plan, rows)
    groups = {"all": plan.tasks} | {kernel: [t for t in plan.tasks if t.kernel == kernel] for kernel in plan.kernels}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "kernels": plan.kernels,
        "spaces": {kernel: _about(plan, kernel) for kernel in plan.kernels}, "seeds": list(plan.seeds),
        "repeats": plan.repeats, "checkpoints": list(plan.checkpoints), "shown": plan.shown, "strategies": list(plan.strategies),
        "reference": plan.reference, "roles": roles(plan),
        "regret": {group: _regrets(scores, tasks) for group, tasks in groups.items()},
        "over_reference": _over(scores, plan.tasks, plan.reference), "over_memorised": _over(scores, plan.tasks, MEMORISED),
        "over_order": _over(scores, plan.tasks, BEST_OF + OTHERS),
        "matrix": {kernel: {device: _cells(scores, Task(kernel, device)) for device in devices}
                   for kernel, devices in plan.kernels.items()},
        "training_s": [card["training_seconds"] for card in cards], "training_steps": cards[0]["training_steps"],
    }  # fmt: skip


def _about(plan: RecordedPlan, kernel: str) -> dict[str, Any]:
    """Size of a kernel's space and, by device, how much of it is near the best."""
    found: dict[str, Any] = {}
    for device in plan.kernels[kernel]:
        space = load_space(plan.file(kernel, device))
        times = space.seconds(plan.timing)
        found[device] = {
            "device": space.device or device, "configurations": len(space), "ran": int(space.ok.sum()),
            "within_5": int((times <= 1.05 * times.min()).sum()), "slowest": float(times[space.ok].max() / times.min()),
        }  # fmt: skip
    return found


def _regrets(scores: Scores, tasks: Sequence[Task]) -> dict[str, list[dict[str, float]]]:
    """Mean regrets of every role after so many trials; a policy may be the same one on several tasks."""
    return {name: interval(mean, scores.stacked(tasks, name), scores.plan.resamples) for name in roles(scores.plan)}


def _over(scores: Scores, tasks: Sequence[Task], other: str) -> dict[str, list[dict[str, float]]]:
    """Every role less another, paired."""
    rest = {name: scores.stacked(tasks, name) for name in roles(scores.plan) if name != other}
    return paired.against(rest, scores.stacked(tasks, other), scores.plan.resamples, crossed=True)


def _cells(scores: Scores, task: Task) -> dict[str, list[float]]:
    """Mean regrets over seeds of every search of a task."""
    return {name: scores.of(task, name).mean(axis=0).tolist() for name in scores.names(task)}
