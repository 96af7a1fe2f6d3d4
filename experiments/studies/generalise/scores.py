"""Scores of the study of generalisation: regrets as arrays over tasks and seeds, and their summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from agents.runs.journal import append_row, read_rows
from agents.runs.pool import side_by_side
from experiments.common import statistics
from experiments.studies.generalise.plan import BUDGET, SECONDS, Contender, GeneralisePlan, Trained
from experiments.studies.scores import EVALUATIONS as BY_COUNT
from experiments.studies.scores import SECONDS as BY_TIME
from experiments.studies.scores import best_at, interval, iqm, iqm_difference, mean
from experiments.studies.study import Row
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.exact import Certificate, append_certificate, certify, read_certificates
from gensor_gym.exact.optimum import MOST_NODES
from gensor_gym.exact.shipped import certificate_of
from gensor_gym.fingerprint import common, fingerprints
from gensor_gym.operators.shapes.splits import HELD_OUT
from gensor_gym.operators.types import Operator

# Certified optima of a study's tasks: shipped certificates, and new certificates in the study's folder.

NAME, REFUSED = "certificates.jsonl", "not_certified.jsonl"


def optima(
    operators: Sequence[Operator], hardware: str, space: str, folder: Path, workers: int, nodes: int = MOST_NODES
) -> tuple[dict[str, Certificate], dict[str, str]]:
    """Find the certified optimum of each operator; return (certificates, reasons), both by operator.

    `reasons` says why a certificate is missing. Certificates in the folder are read, and new ones are added. An operator that
    could not be certified with `nodes` nodes of the search tree is not tried again.
    """
    now = fingerprints(operators, hardware, space)
    here = [(text, hardware, space, mark) for text, mark in now.items()]
    kept = [found for found in read_certificates(folder / NAME) if (*found.key, found.fingerprint) in here]
    known = {found.operator: found for found in kept}
    for text in now:
        if text not in known and (shipped := certificate_of(ConstructionGraph(text, hardware, space))) is not None:
            known[text] = shipped
    names = ("operator", "hardware", "space", "fingerprint")
    tried = [row for row in read_rows(folder / REFUSED) if row["nodes"] >= nodes and tuple(row[name] for name in names) in here]
    refused = {row["operator"]: row["why"] for row in tried}
    left = [text for text in now if text not in known and text not in refused]
    for text, found in side_by_side(partial(_certified, hardware, space, nodes), left, workers):
        if isinstance(found, Certificate):
            append_certificate(folder / NAME, found)
            known[text] = found
        else:
            refused[text] = found
            about = {"operator": text, "hardware": hardware, "space": space, "nodes": nodes}
            append_row(folder / REFUSED, {**about, "why": found, "fingerprint": now[text]})
    return {text: known[text] for text in now if text in known}, {text: refused[text] for text in now if text not in known}


def _certified(hardware: str, space: str, nodes: int, text: str) -> tuple[str, Certificate | str]:
    """Return (operator, its certificate, or the reason why it has none)."""
    try:
        return text, certify(ConstructionGraph(text, hardware, space), most_nodes=nodes)
    except ValueError as error:
        return text, str(error).splitlines()[0]


GREEDY, FIRST = "greedy", "first round"
BELOW = 1e-9
"""Relative rounding error of a latency; a latency below the certified optimum by more is an error."""


@dataclass(frozen=True)
class Task:
    """An operator of the study with the certificate of its optimum."""

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
    """Regrets of all searches of a study, computed from their rows.

    `unknown` gives the reason for each operator without a certified optimum.
    """

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
        """Names of all policies, then of all strategies."""
        return [learned.name for learned in self.plan.policies] + list(self.plan.strategies)

    def grid(self, name: str) -> np.ndarray:
        """Return the rows of the search `name` as an object array [tasks, seeds of the policies]."""
        seeds = self.plan.seeds_of(name.partition(BUDGET)[0])
        found = np.empty((len(self.tasks), len(seeds)), dtype=object)
        for t, s in np.ndindex(found.shape):
            found[t, s] = self.rows[name, self.tasks[t].text, seeds[s]]
        return found

    def regret(self, name: str, evaluations: np.ndarray | Sequence[int]) -> np.ndarray:
        """Return the regret of the best program after given numbers of evaluations, float64 [tasks, seeds, K].

        `evaluations` are [K], or [tasks, seeds, K]. A strategy tuned for several numbers of evaluations uses the search tuned for
        the nearest number.
        """
        shape = len(self.tasks), len(self.plan.seeds), np.shape(evaluations)[-1]
        counts = np.broadcast_to(np.asarray(evaluations, dtype=float), shape)
        variants = self.plan.labels(name)
        known = np.array(sorted(variants))
        nearest = np.abs(np.log(counts[..., None]) - np.log(np.maximum(known, 1))).argmin(axis=-1)
        return np.choose(nearest, [self.best(variants[count], counts, BY_COUNT) for count in known.tolist()])

    def regret_within(self, name: str, seconds: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the regret of the best program after given processor seconds [K], float64 [tasks, seeds, K].

        A strategy tuned for several times uses, for each time, the search tuned for the shortest time that is at least as long.
        """
        variants = self.plan.labels(name, SECONDS)
        known = np.array(sorted(variants))
        chosen = known[np.minimum(np.searchsorted(known, seconds), len(known) - 1)]
        return np.concatenate([self.best(variants[a], [t], BY_TIME) for a, t in zip(chosen, seconds, strict=True)], axis=2)

    def best(self, search: str, at: np.ndarray | Sequence[float], column: int) -> np.ndarray:
        """Return the regret of a search's best program when a column of its curve has reached each value of `at`.

        The result is [tasks, seeds, K]; the columns are evaluations and seconds.
        """
        return self._regrets(best_at(self.grid(search), self._start, at, column))

    def _regrets(self, latencies: np.ndarray) -> np.ndarray:
        """Return log(latency / optimum) of latencies [tasks, ..]; raise ValueError if one is below the certified optimum."""
        ratio = latencies / self._optima.reshape(-1, *[1] * (latencies.ndim - 1))
        if (ratio < 1.0 - BELOW).any():
            bad = self.tasks[int(np.argwhere(ratio < 1.0 - BELOW)[0][0])]
            raise ValueError(f"a program of {bad.text} is faster than its certified optimum: certificate or line is wrong")
        found: np.ndarray = np.log(np.maximum(ratio, 1.0))
        return found

    def first(self, search: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (evaluations, regret, processor seconds) when a search has ended its first round of episodes.

        Each is float64 [tasks, seeds].
        """
        firsts = [[line["first"] for line in lines] for lines in self.grid(search)]
        names = ("evaluations", "latency", "elapsed_s")
        evaluations, latency, seconds = (np.array([[one[name] for one in of] for of in firsts], dtype=float) for name in names)
        return evaluations, self._regrets(np.fmin(latency, self._start[:, None])), seconds  # a latency of None is NaN here

    def rounds(self, learned: Contender) -> dict[str, str]:
        """Return a policy's searches by label, whose first rounds are reported: one greedy episode, or the best of several."""
        if learned.best_of is None:
            return {FIRST: learned.name}
        behind = ", then chains" if learned.annealed else ""
        return {f"{GREEDY}{behind}": learned.name, f"best of {learned.best_of}{behind}": learned.sampled}


# The summary of a study of generalisation: values with their intervals, and the cost of training.

NEAR = 0.05
"""Largest regret of a program that counts as nearly optimal."""
SIZES = ("smaller", "middle", "larger")
"""Names of the thirds of the tasks, by the size of their iteration spaces."""
POINTS, SOONEST = 96, 1e-4
"""Number of costs, at equal ratios, at which a search is compared with the policy, and the first of them in seconds."""


def summarise(study: Regrets) -> dict[str, Any]:
    """Summarise the study as a JSON object, from which the page is written."""
    plan = study.plan
    return {
        "fingerprint": common(fingerprints(plan.operators, plan.hardware, plan.space).values()),
        "date": max(row["date"] for row in study.rows.values()), "part": plan.part, "split": plan.split,
        "hardware": plan.hardware, "space": plan.space, "evaluations": plan.evaluations,
        "seeds": list(plan.seeds), "begun": plan.begun, "checkpoints": list(plan.checkpoints), "seconds": list(plan.seconds),
        "reference": plan.config["reference"], "processes": plan.processes, "left_out": list(plan.left_out),
        "unknown": study.unknown,
        "tasks": [
            {
                "operator": task.text, "part": operators.part_of(task.operator, plan.split),
                "optimum_s": task.certificate.optimum, "unscheduled": math.log(task.unscheduled / task.certificate.optimum),
                "visited": task.certificate.visited, "certified_s": task.certificate.seconds,
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
        "policies": {learned.name: _policy(study, learned, study.policies[learned.name]) for learned in plan.policies},
        "codes": sorted({row["code"] for row in study.rows.values()}),
    }  # fmt: skip


def _policy(study: Regrets, learned: Contender, trained: Sequence[Trained]) -> dict[str, Any]:
    return {
        "reference": learned.reference, "of": learned.of,
        "training_s": [one.seconds for one in trained], "training_steps": [one.steps for one in trained],
        "rounds": {label: _round(study, search, learned.reference) for label, search in study.rounds(learned).items()},
        "break_even": break_even(study, learned, trained),
    }  # fmt: skip


def _round(study: Regrets, search: str, reference: str) -> dict[str, Any]:
    """Summarise a policy's first round of episodes, and all strategies after as many evaluations on each task and seed."""
    plan = study.plan
    evaluations, regret, seconds = study.first(search)
    ours = regret[..., None]
    theirs = {name: study.regret(name, evaluations[..., None]) for name in plan.strategies}
    differences = statistics.against({name: -other for name, other in theirs.items()}, -ours, plan.resamples, crossed=True)
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
        "groups": [_group(study, name, ours[of], theirs[reference][of]) for name, of in groups_of(study.tasks).items()],
    }  # fmt: skip


def _group(study: Regrets, name: str, ours: np.ndarray, theirs: np.ndarray) -> dict[str, Any]:
    """Return a search's and the reference's mean regret on a group of tasks, and their difference with its interval."""
    pair = statistics.against({"reference": -theirs}, -ours, study.plan.resamples, crossed=True)
    return {
        "group": name, "tasks": len(ours), "ours": float(ours.mean()), "theirs": float(theirs.mean()),
        "near": float((ours <= NEAR).mean()), "over": pair["reference"][0],
    }  # fmt: skip


def groups_of(tasks: Sequence[Task]) -> dict[str, np.ndarray]:
    """Group the tasks; return a mask bool [tasks] by name for every operator class and for every third by size.

    The class that was held out of training is marked in its name.
    """
    kinds = [task.operator.name for task in tasks]
    marked = {kind: f"{kind} (class held out)" if kind == HELD_OUT else kind for kind in sorted(set(kinds))}
    found = {label: np.array([kind == own for own in kinds]) for kind, label in marked.items()}
    if HELD_OUT in kinds and len(marked) > 1:
        found["classes seen in training"] = np.array([kind != HELD_OUT for kind in kinds])
    points = np.array([task.operator.points for task in tasks], dtype=float)
    place = np.argsort(np.argsort(points, kind="stable"), kind="stable") * len(SIZES) // max(1, len(tasks))
    return found | {f"{size} third": place == i for i, size in enumerate(SIZES) if (place == i).any()}


def break_even(study: Regrets, learned: Contender, trained: Sequence[Trained]) -> dict[str, Any]:
    """Compare the cost of training a policy and using its best of several episodes with that of searching without it.

    `evaluations` and `seconds` each have these entries: `ours`, the policy's cost per operator; `theirs`, the cost of the first
    strategy, `who`, to reach the policy's IQM regret, both None if no strategy does in the study; `training`, the cost of
    training; and `operators`, the number of operators from which the policy costs less in total, None if the policy costs more on
    each.
    """
    plan = study.plan
    evaluations, regret, seconds = study.first(learned.sampled)
    aim = float(statistics.interquartile_mean(regret))
    counts = np.unique(np.geomspace(1, plan.evaluations, POINTS).astype(int))
    times = np.geomspace(SOONEST, plan.longest, POINTS)
    by_count = {name: iqm(study.regret(name, counts)) <= aim for name in plan.strategies}
    by_time = {name: iqm(study.regret_within(name, times)) <= aim for name in plan.strategies}
    steps, training = (float(np.mean([getattr(one, name) for one in trained])) for name in ("steps", "seconds"))
    return {
        "regret": aim,
        "evaluations": _even(float(evaluations.mean()), counts, by_count, steps),
        "seconds": _even(float(seconds.mean()), times, by_time, training),
    }  # fmt: skip


def _even(ours: float, places: np.ndarray, reached: Mapping[str, np.ndarray], training: float) -> dict[str, Any]:
    """Return the entries of `break_even` in one unit of cost.

    `ours` is the policy's cost per operator, and `reached` says, for each strategy, at which of the costs `places` it is as good.
    """
    needed = {name: float(places[int(np.argmax(at))]) for name, at in reached.items() if at.any()}
    who = min(needed, key=lambda name: needed[name], default=None)
    theirs = None if who is None else needed[who]
    even = training / (theirs - ours) if theirs is not None and theirs > ours else None
    return {"ours": ours, "theirs": theirs, "who": who, "training": training, "operators": even}
