"""What a study of generalisation found: regrets as arrays over tasks and seeds, and as plain values with their intervals."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from experiments.common import paired, statistics
from experiments.studies.generalise import costs as generalise_costs
from experiments.studies.generalise.plan import BUDGET, Contender, Plan
from experiments.studies.generalise.policies import Trained
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate
from gensor_gym.fingerprint import common, fingerprints
from gensor_gym.operators.splits import HELD_OUT
from gensor_gym.operators.types import Operator

NEAR = 0.05
"""Regret within which a program is called near the optimum."""
GREEDY, FIRST = "greedy", "first round"
SIZES = ("smaller", "middle", "larger")
"""Thirds of the tasks by points of their loops."""
BELOW = 1e-9
"""Relative difference by which a latency may be below the certified optimum, which is exact: none."""


@dataclass(frozen=True)
class Task:
    """One operator with its certificate."""

    operator: Operator
    certificate: Certificate
    unscheduled: float
    """Seconds of the program that every search begins with: what is known before anything is evaluated."""

    @property
    def text(self) -> str:
        """The operator as text."""
        return str(self.operator)


def task_of(operator: Operator, certificate: Certificate) -> Task:
    """The task of a certificate."""
    graph = ConstructionGraph(operator, certificate.hardware, certificate.space)
    return Task(operator, certificate, graph.latency(graph.initial()))


class Study:
    """The lines of all searches of a plan."""

    def __init__(self, plan: Plan, tasks: Sequence[Task], rows: Sequence[dict[str, Any]], policies: dict[str, Sequence[Trained]]):
        """Sort the lines by search, task and seed."""
        self.plan, self.tasks, self.policies = plan, tuple(tasks), policies
        self._rows: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
        for row in rows:
            self._rows.setdefault(row["strategy"], {})[row["operator"], row["seed"]] = row

    @property
    def names(self) -> list[str]:
        """Policies, then strategies."""
        return [learned.name for learned in self.plan.policies] + list(self.plan.strategies)

    @cached_property
    def optima(self) -> np.ndarray:
        """Seconds of the certified optima, float64 [tasks]."""
        return np.array([task.certificate.optimum for task in self.tasks])

    def grid(self, name: str) -> list[list[dict[str, Any]]]:
        """Lines [tasks][seeds] of a search by its own name, beside the seeds of the policies."""
        of, seeds = self._rows[name], self.plan.seeds_of(name.partition(BUDGET)[0])
        return [[of[task.text, seed] for seed in seeds] for task in self.tasks]

    def regret(self, name: str, evaluations: np.ndarray | Sequence[int]) -> np.ndarray:
        """Regret of the best after so many evaluations ([K], or [tasks, seeds, K]), float64 [tasks, seeds, K].

        Of a strategy that is tuned for several numbers of evaluations, each is answered by the nearest one's search.
        """
        counts = np.broadcast_to(np.asarray(evaluations, dtype=float), self._shape(evaluations))
        variants = self.plan.labels(name)
        known = np.array(sorted(variants))
        nearest = np.abs(np.log(counts[..., None]) - np.log(np.maximum(known, 1))).argmin(axis=-1)
        found = np.empty(counts.shape)
        for number, count in enumerate(known.tolist()):
            values = self._best(variants[count], counts, 0)
            found = np.where(nearest == number, values, found)
        return found

    def regret_within(self, name: str, seconds: Sequence[float]) -> np.ndarray:
        """Regret of the best after so many wall seconds [K], float64 [tasks, seeds, K].

        Of a strategy that is tuned for several numbers of evaluations: of the one for the most.
        """
        variants = self.plan.labels(name)
        return self._best(variants[max(variants)], np.broadcast_to(np.asarray(seconds), self._shape(seconds)), 2)

    def _shape(self, values: np.ndarray | Sequence[Any]) -> tuple[int, int, int]:
        """[tasks, seeds, K]."""
        return len(self.tasks), len(self.plan.seeds), np.shape(values)[-1]

    def _best(self, search: str, at: np.ndarray, axis: int) -> np.ndarray:
        """Regrets [tasks, seeds, K] where part `axis` of the curve (0 evaluations, 2 seconds) has come to `at`."""
        found = np.empty(at.shape)
        for t, lines in enumerate(self.grid(search)):
            for s, line in enumerate(lines):
                latencies = np.array([self.tasks[t].unscheduled, *line["curve"][1]])
                ended = np.searchsorted(np.array(line["curve"][axis], dtype=float), at[t, s], side="right")
                found[t, s] = np.minimum(latencies[0], latencies[ended])
        return self._regrets(found)

    def _regrets(self, latencies: np.ndarray) -> np.ndarray:
        """log(latency / optimum) of float64 [tasks, ..]; ValueError for one below the certified optimum."""
        ratio = latencies / self.optima.reshape(-1, *[1] * (latencies.ndim - 1))
        if (ratio < 1.0 - BELOW).any():
            bad = self.tasks[int(np.argwhere(ratio < 1.0 - BELOW)[0][0])]
            raise ValueError(f"a program of {bad.text} is faster than its certified optimum: certificate or line is wrong")
        found: np.ndarray = np.log(np.maximum(ratio, 1.0))
        return found

    def first(self, search: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(evaluations, regret, wall seconds) at the end of a search's first round, float64 [tasks, seeds] each."""
        firsts = [[line["first"] for line in lines] for lines in self.grid(search)]
        names = ("evaluations", "latency", "elapsed_s")
        of = {name: np.array([[first[name] for first in line] for line in firsts], dtype=float) for name in names}
        worst = np.array([task.unscheduled for task in self.tasks])[:, None]
        return of["evaluations"], self._regrets(np.fmin(of["latency"], worst)), of["elapsed_s"]  # None is nan here

    def rounds(self, learned: Contender) -> dict[str, str]:
        """Search by what its first round is: one greedy episode, the best of so many."""
        if learned.best_of is None:
            return {FIRST: learned.name}
        behind = ", then chains" if learned.annealed else ""
        return {f"{GREEDY}{behind}": learned.name, f"best of {learned.best_of}{behind}": learned.sampled}


def iqm(values: np.ndarray) -> np.ndarray:
    """Interquartile mean over tasks and seeds."""
    return statistics.interquartile_mean(values, axis=(0, 1))


def mean(values: np.ndarray) -> np.ndarray:
    """Mean over tasks and seeds."""
    found: np.ndarray = values.mean(axis=(0, 1))
    return found


def interval(statistic: Any, values: np.ndarray, resamples: int) -> list[dict[str, float]]:
    """A statistic of values [tasks, seeds, K] with its interval over tasks and seeds, which are the same on all tasks."""
    low, high = statistics.bootstrap(statistic, values, resamples=resamples, crossed=True)
    rows = zip(statistic(values).tolist(), low.tolist(), high.tolist(), strict=True)
    return [dict(zip(("mean", "low", "high"), row, strict=True)) for row in rows]


def iqm_difference(ours: np.ndarray, other: np.ndarray, resamples: int) -> dict[str, float]:
    """IQM of our scores less that of others [tasks, seeds, 1], with its paired interval: the same resamples of both."""

    def difference(ours: np.ndarray, other: np.ndarray) -> np.ndarray:
        return iqm(ours) - iqm(other)

    low, high = statistics.bootstrap(difference, ours, other, resamples=resamples, crossed=True)
    return {"mean": float(difference(ours, other)[0]), "low": float(low[0]), "high": float(high[0])}


def summarise(study: Study, unknown: dict[str, str]) -> dict[str, Any]:
    """Plain values; `report` beside this says how they are read. `unknown`: why tasks have no optimum."""
    plan = study.plan
    return {
        "fingerprint": common(fingerprints(plan.operators, plan.hardware, plan.space).values()),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "part": plan.part, "hardware": plan.hardware, "space": plan.space, "evaluations": plan.evaluations,
        "seeds": list(plan.seeds), "begun": plan.begun, "checkpoints": list(plan.checkpoints), "seconds": list(plan.seconds),
        "reference": plan.reference, "processes": plan.processes, "left_out": list(plan.left_out), "unknown": unknown,
        "tasks": [
            {
                "operator": task.text, "part": operators.part_of(task.operator), "optimum_s": task.certificate.optimum,
                "unscheduled": math.log(task.unscheduled / task.certificate.optimum), "visited": task.certificate.visited,
                "certified_s": task.certificate.seconds,
            }
            for task in study.tasks
        ],
        "strategies": {
            name: {
                "regret": interval(iqm, study.regret(name, plan.checkpoints), plan.resamples),
                "within": interval(iqm, study.regret_within(name, plan.seconds), plan.resamples),
            }
            for name in study.names
        },
        "policies": {learned.name: _policy(study, learned) for learned in plan.policies},
        "codes": sorted({row["code"] for of in study._rows.values() for row in of.values()}),
    }  # fmt: skip


def _policy(study: Study, learned: Contender) -> dict[str, Any]:
    """What is said of one policy."""
    trained = study.policies[learned.name]
    rounds = {label: _round(study, search, learned.reference) for label, search in study.rounds(learned).items()}
    return {
        "reference": learned.reference,
        "of": learned.of, "training_s": [one.seconds for one in trained], "training_steps": [one.steps for one in trained],
        "rounds": rounds, "break_even": generalise_costs.break_even(study, learned, trained),
    }  # fmt: skip


def _round(study: Study, search: str, reference: str) -> dict[str, Any]:
    """One round of a policy beside all strategies at the very evaluations that it took on that task with that seed."""
    plan = study.plan
    evaluations, regret, seconds = study.first(search)
    ours = regret[..., None]
    theirs = {name: study.regret(name, evaluations[..., None]) for name in plan.strategies}
    differences = paired.against({name: -other for name, other in theirs.items()}, -ours, plan.resamples, crossed=True)
    return {
        "evaluations": float(evaluations.mean()), "seconds": float(seconds.mean()),
        "cut": int((evaluations >= plan.evaluations).sum()),
        "iqm": interval(iqm, ours, plan.resamples)[0], "mean": interval(mean, ours, plan.resamples)[0],
        "near": float((regret <= NEAR).mean()), "optimal": float((regret == 0.0).mean()),
        "beside": {
            name: {
                "iqm": interval(iqm, other, plan.resamples)[0], "mean": float(other.mean()), "over": differences[name][0],
                "iqm_over": iqm_difference(ours, other, plan.resamples),
            }
            for name, other in theirs.items()
        },
        "groups": _groups(study, ours, theirs[reference]),
    }  # fmt: skip


def _groups(study: Study, ours: np.ndarray, theirs: np.ndarray) -> list[dict[str, Any]]:
    """Mean regrets by operator class and by size, and the difference to the reference with its interval."""
    found = []
    for name, member in groups_of(study.tasks).items():
        pair = paired.against({"reference": -theirs[member]}, -ours[member], study.plan.resamples, crossed=True)
        found.append(
            {
                "group": name, "tasks": int(member.sum()), "ours": float(ours[member].mean()),
                "theirs": float(theirs[member].mean()), "near": float((ours[member] <= NEAR).mean()),
                "over": pair["reference"][0],
            }
        )  # fmt: skip
    return found


def groups_of(tasks: Sequence[Task]) -> dict[str, np.ndarray]:
    """Members, bool [tasks], of every operator class, the held-out one marked, and of every third by size."""
    kinds = [task.operator.name for task in tasks]
    marked = {kind: f"{kind} (class held out)" if kind == HELD_OUT else kind for kind in sorted(set(kinds))}
    found = {label: np.array([kind == own for own in kinds]) for kind, label in marked.items()}
    if any(kind == HELD_OUT for kind in kinds) and len(marked) > 1:
        found["classes seen in training"] = np.array([kind != HELD_OUT for kind in kinds])
    points = np.array([task.operator.points for task in tasks], dtype=float)
    place = np.argsort(np.argsort(points, kind="stable"), kind="stable") * len(SIZES) // max(1, len(tasks))
    return found | {f"{size} third": place == i for i, size in enumerate(SIZES) if (place == i).any()}
