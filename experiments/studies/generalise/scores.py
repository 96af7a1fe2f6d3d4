"""Regrets of a study of generalisation, as arrays over tasks and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from experiments.studies.generalise.plan import BUDGET, SECONDS, Contender, GeneralisePlan
from experiments.studies.generalise.policies import Trained
from experiments.studies.scores import EVALUATIONS as BY_COUNT
from experiments.studies.scores import SECONDS as BY_TIME
from experiments.studies.scores import best_at
from experiments.studies.study import Row
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate
from gensor_gym.operators.types import Operator

GREEDY, FIRST = "greedy", "first round"
BELOW = 1e-9
"""Relative rounding error of a latency. A latency further below the certified optimum is an error."""


@dataclass(frozen=True)
class Task:
    """An operator with its certificate."""

    operator: Operator
    certificate: Certificate

    @cached_property
    def unscheduled(self) -> float:
        """Latency in seconds of the unscheduled program, from which every search begins."""
        graph = ConstructionGraph(self.operator, self.certificate.hardware, self.certificate.space)
        return graph.latency(graph.initial())

    @property
    def text(self) -> str:
        """The operator as text."""
        return str(self.operator)


class Regrets:
    """Rows of all searches of a plan. `unknown` gives the reason for each operator without a certified optimum."""

    def __init__(
        self, plan: GeneralisePlan, tasks: Sequence[Task], rows: Sequence[Row], policies: Mapping[str, Sequence[Trained]],
        unknown: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.tasks, self.policies, self.unknown = plan, tuple(tasks), policies, dict(unknown or {})
        self.rows = {(row["strategy"], row["operator"], row["seed"]): row for row in rows}
        self._start = np.array([task.unscheduled for task in self.tasks])
        self._optima = np.array([task.certificate.optimum for task in self.tasks])

    @property
    def names(self) -> list[str]:
        """Names of the policies, then of the strategies."""
        return [learned.name for learned in self.plan.policies] + list(self.plan.strategies)

    def grid(self, name: str) -> np.ndarray:
        """Rows of the search `name`, object [tasks, seeds of the policies]."""
        seeds = self.plan.seeds_of(name.partition(BUDGET)[0])
        found = np.empty((len(self.tasks), len(seeds)), dtype=object)
        for t, s in np.ndindex(found.shape):
            found[t, s] = self.rows[name, self.tasks[t].text, seeds[s]]
        return found

    def regret(self, name: str, evaluations: np.ndarray | Sequence[int]) -> np.ndarray:
        """Regret of the best program after the given evaluations ([K] or [tasks, seeds, K]), float64 [tasks, seeds, K].

        A strategy tuned for several numbers of evaluations uses the search tuned for the nearest number.
        """
        shape = len(self.tasks), len(self.plan.seeds), np.shape(evaluations)[-1]
        counts = np.broadcast_to(np.asarray(evaluations, dtype=float), shape)
        variants = self.plan.labels(name)
        known = np.array(sorted(variants))
        nearest = np.abs(np.log(counts[..., None]) - np.log(np.maximum(known, 1))).argmin(axis=-1)
        return np.choose(nearest, [self.best(variants[count], counts, BY_COUNT) for count in known.tolist()])

    def regret_within(self, name: str, seconds: Sequence[float] | np.ndarray) -> np.ndarray:
        """Regret of the best program after processor seconds [K], float64 [tasks, seeds, K].

        A strategy tuned for several times uses the search tuned for the shortest time that is not below.
        """
        variants = self.plan.labels(name, SECONDS)
        known = np.array(sorted(variants))
        chosen = known[np.minimum(np.searchsorted(known, seconds), len(known) - 1)]
        return np.concatenate([self.best(variants[a], [t], BY_TIME) for a, t in zip(chosen, seconds, strict=True)], axis=2)

    def best(self, search: str, at: np.ndarray | Sequence[float], column: int) -> np.ndarray:
        """Regrets [tasks, seeds, K] of a search when a column of its curve has reached the values `at`."""
        return self._regrets(best_at(self.grid(search), self._start, at, column))

    def _regrets(self, latencies: np.ndarray) -> np.ndarray:
        """log(latency / optimum) of latencies [tasks, ..]; ValueError if one is below the certified optimum."""
        ratio = latencies / self._optima.reshape(-1, *[1] * (latencies.ndim - 1))
        if (ratio < 1.0 - BELOW).any():
            bad = self.tasks[int(np.argwhere(ratio < 1.0 - BELOW)[0][0])]
            raise ValueError(f"a program of {bad.text} is faster than its certified optimum: certificate or line is wrong")
        found: np.ndarray = np.log(np.maximum(ratio, 1.0))
        return found

    def first(self, search: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(evaluations, regret, processor seconds) at the end of a search's first round, float64 [tasks, seeds] each."""
        firsts = [[line["first"] for line in lines] for lines in self.grid(search)]
        names = ("evaluations", "latency", "elapsed_s")
        evaluations, latency, seconds = (np.array([[one[name] for one in of] for of in firsts], dtype=float) for name in names)
        return evaluations, self._regrets(np.fmin(latency, self._start[:, None])), seconds  # a latency of None is NaN here

    def rounds(self, learned: Contender) -> dict[str, str]:
        """Label -> search of a policy's first rounds: one greedy episode, and the best of several episodes."""
        if learned.best_of is None:
            return {FIRST: learned.name}
        behind = ", then chains" if learned.annealed else ""
        return {f"{GREEDY}{behind}": learned.name, f"best of {learned.best_of}{behind}": learned.sampled}
