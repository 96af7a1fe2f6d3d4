"""What a study of generalisation found: regrets as arrays over tasks and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from experiments.studies.generalise.plan import BUDGET, SECONDS, Contender, Plan
from experiments.studies.generalise.policies import Trained
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate
from gensor_gym.operators.types import Operator

GREEDY, FIRST = "greedy", "first round"
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


class Regrets:
    """The lines of all searches of a plan."""

    def __init__(
        self, plan: Plan, tasks: Sequence[Task], rows: Sequence[dict[str, Any]], policies: Mapping[str, Sequence[Trained]],
        unknown: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Sort the lines by search, task and seed. `unknown`: why other operators have no optimum."""
        self.plan, self.tasks, self.policies, self.unknown = plan, tuple(tasks), policies, dict(unknown or {})
        self._rows: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
        for row in rows:
            self._rows.setdefault(row["strategy"], {})[row["operator"], row["seed"]] = row

    @property
    def names(self) -> list[str]:
        """Policies, then strategies."""
        return [learned.name for learned in self.plan.policies] + list(self.plan.strategies)

    @property
    def codes(self) -> list[str]:
        """Digests of the program text that the searches ran."""
        return sorted({row["code"] for of in self._rows.values() for row in of.values()})

    @property
    def date(self) -> str:
        """Of the latest search."""
        return max(row["date"] for of in self._rows.values() for row in of.values())

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
        """Regret of the best after so many processor seconds [K], float64 [tasks, seeds, K].

        Of a strategy that is tuned for several numbers of seconds, by the search for the least that is not below.
        """
        at = np.asarray(seconds, dtype=float)
        variants = self.plan.labels(name, SECONDS)
        known = np.array(sorted(variants))
        chosen = known[np.minimum(np.searchsorted(known, at), len(known) - 1)]
        parts = [self._best(variants[a], np.broadcast_to(t, self._shape([t])), 2) for a, t in zip(chosen, at, strict=True)]
        return np.concatenate(parts, axis=2)

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
        """(evaluations, regret, processor seconds) at the end of a search's first round, float64 [tasks, seeds] each."""
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
