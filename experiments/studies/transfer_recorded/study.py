"""Policies trained on recordings of one real GPU, tested on other GPUs: `python -m experiments transfer_recorded`.

Configuration: conf/transfer_recorded.yaml; results: docs/generalisation.md. The recordings are complete spaces of a kernel on
several GPUs, and regret is relative to the best configuration of the tested GPU. All searches have equal numbers of trials. They
are policies trained on another GPU, on all others, or on the tested recording itself (which shows memorisation, not transfer),
the order of the other GPUs' times, and plain searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console

from agents.runs.lines import with_bar
from agents.runs.pool import side_by_side
from agents.runs.texts import now
from agents.training.recorded_spaces import known_card, learn_at
from experiments.studies.scores import interval, mean, over
from experiments.studies.study import Row, Study, study_command
from experiments.studies.transfer_recorded import report
from experiments.studies.transfer_recorded.plan import (
    ANOTHER,
    BEST_OF,
    FROM_BEST,
    MEMORISED,
    OTHERS,
    POLICY_OF,
    RecordedPlan,
    Task,
    plan_of,
    regrets,
    search_recorded,
)
from gensor_gym.spaces import load_space

BEST_OF_ANOTHER = BEST_OF + "another"


class Scores:
    """Regrets [seeds, K] of every search of every task, computed from the rows of all searches."""

    def __init__(self, plan: RecordedPlan, rows: Sequence[Row]) -> None:
        self.plan = plan
        self.found: dict[tuple[str, str, str], dict[int, np.ndarray]] = {}
        for row in rows:
            space = load_space(plan.file(row["kernel"], row["device"]))
            times = space.seconds(plan.config["timing"])
            values = regrets(row["curves"], list(plan.checkpoints), float(times.min()), float(times[space.ok].max()))
            self.found.setdefault((row["kernel"], row["device"], row["name"]), {})[row["seed"]] = values

    def of(self, task: Task, name: str) -> np.ndarray:
        """Regrets of a search by its name; a search that ran once counts for every seed."""
        by_seed = self.found[task.kernel, task.device, name]
        return np.stack([by_seed.get(seed, by_seed[min(by_seed)]) for seed in self.plan.seeds])

    def names(self, task: Task) -> list[str]:
        """Names of all searches of a task."""
        return [name for kernel, device, name in self.found if (kernel, device) == (task.kernel, task.device)]

    def role(self, task: Task, name: str) -> np.ndarray:
        """Regrets of a role for the tested device; a role that concerns another device is the mean over all other devices."""
        if name == MEMORISED:
            return self.of(task, POLICY_OF + task.device)
        if name in (ANOTHER, BEST_OF_ANOTHER):
            prefix = POLICY_OF if name == ANOTHER else BEST_OF
            return np.mean([self.of(task, prefix + device) for device in self.plan.elsewhere(task)], axis=0)
        return self.of(task, name)

    def roles(self, tasks: Sequence[Task]) -> dict[str, np.ndarray]:
        """Role -> regrets [tasks, seeds, K]."""
        return {name: np.stack([self.role(task, name) for task in tasks]) for name in roles(self.plan)}


def roles(plan: RecordedPlan) -> list[str]:
    """Names of the roles that every task has."""
    return [MEMORISED, ANOTHER, POLICY_OF + OTHERS, FROM_BEST, BEST_OF_ANOTHER, BEST_OF + OTHERS, *plan.strategies]


def _about(plan: RecordedPlan, kernel: str, device: str) -> dict[str, Any]:
    """Size of a recorded space, and the number of its configurations near the best."""
    space = load_space(plan.file(kernel, device))
    times = space.seconds(plan.config["timing"])
    return {
        "device": space.device or device, "configurations": len(space), "ran": int(space.ok.sum()),
        "within_5": int((times <= 1.05 * times.min()).sum()), "slowest": float(times[space.ok].max() / times.min()),
    }  # fmt: skip


class RecordedTransfer(Study[RecordedPlan, tuple[list[Row], list[Row]]]):
    """The study of policies and searches on recordings; its results are (rows of all searches, cards of all policies)."""

    def run(self, console: Console) -> tuple[list[Row], list[Row]]:
        """Train missing policies, run missing searches, and return rows and cards."""
        plan, trainings = self.plan, self.plan.trainings()
        missing = [training for training in trainings if known_card(*training) is None]
        list(with_bar(console, "policies", side_by_side(learn_at, missing, plan.processes), len(missing)))
        cards = [card for training in trainings if (card := known_card(*training)) is not None]
        return self.lines(plan.searches(), console, search_recorded), cards

    def summarise(self, found: tuple[list[Row], list[Row]]) -> dict[str, Any]:
        """Summary: mean regrets by role over all tasks and by kernel, paired differences, and a matrix for each kernel."""
        plan, (rows, cards) = self.plan, found
        scores = Scores(plan, rows)
        groups = {"all": plan.tasks} | {kernel: [t for t in plan.tasks if t.kernel == kernel] for kernel in plan.kernels}
        known = {group: scores.roles(tasks) for group, tasks in groups.items()}
        others = {"reference": plan.config["reference"], "memorised": MEMORISED, "order": BEST_OF + OTHERS}

        def cells(task: Task) -> dict[str, list[float]]:
            return {name: scores.of(task, name).mean(axis=0).tolist() for name in scores.names(task)}

        return {
            "date": now(), "kernels": plan.kernels,
            "spaces": {kernel: {name: _about(plan, kernel, name) for name in names} for kernel, names in plan.kernels.items()},
            "seeds": list(plan.seeds), "repeats": plan.config["repeats"], "checkpoints": list(plan.checkpoints),
            "shown": plan.config["shown"], "strategies": list(plan.strategies), "reference": plan.config["reference"],
            "roles": roles(plan),
            "regret": {
                group: {name: interval(mean, of, plan.resamples) for name, of in by.items()} for group, by in known.items()
            },
            **{f"over_{name}": over(known["all"], other, plan.resamples) for name, other in others.items()},
            "matrix": {kernel: {name: cells(Task(kernel, name)) for name in names} for kernel, names in plan.kernels.items()},
            "training_s": [card["training_seconds"] for card in cards], "training_steps": cards[0]["training_steps"],
        }  # fmt: skip

    def draw(self, found: tuple[list[Row], list[Row]], summary: dict[str, Any]) -> list[str]:
        """Draw matrices and curves; return the file names."""
        return report.draw(summary, self.output)

    markdown, sheet = staticmethod(report.markdown), staticmethod(report.sheet)


main = study_command("transfer_recorded", lambda config: RecordedTransfer(plan_of(config)))
