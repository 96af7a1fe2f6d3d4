"""Scores of a study of searches: arrays over tasks, seeds and trials, and their summary with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from agents.runs.jobs import DONE, Outcome
from agents.runs.results import Results
from agents.runs.settings import Job, Settings
from agents.runs.texts import now
from experiments.common import statistics
from experiments.common.statistics import best_so_far, expected_best
from experiments.studies.scores import interval, iqm
from experiments.studies.study import Stamp
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.fingerprint import common
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.operators.types import Operator
from gensor_gym.registry import check_known

# Regrets of a task's kernels, relative to the best of a recorded space or to the best that any search found.

class BestKnown:
    """Regrets of one operator's kernels, relative to the fastest kernel that any search of the study found.

    It is used for spaces without a complete recording.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read the trials of all searches on the operator; raise ValueError if none succeeded."""
        known = {row["schedule"]: row["seconds"] for row in rows if row["seconds"] is not None}
        if not known:
            raise ValueError("no trial of any search ran well: there is no best to compare with")
        best = min(known.values())
        self._keep({schedule: math.log(seconds / best) for schedule, seconds in known.items()})

    def _keep(self, regrets: dict[str, float]) -> None:
        """Store the regrets by kernel; a failed kernel, whose regret is infinite, is scored like the slowest kernel (`worst`)."""
        self._of = regrets
        self.worst = max(regret for regret in regrets.values() if math.isfinite(regret))
        self.regrets = np.minimum(list(regrets.values()), self.worst)

    def chance(self, length: int) -> np.ndarray:
        """Return the expected regret of the best of k = 1 .. length random kernels, which is unknown here: NaN [length]."""
        return np.full(length, math.nan)

    def curve(self, schedules: list[str], length: int) -> np.ndarray:
        """Return the regret of the best program after k = 1 .. length trials of these schedules, float64 [length].

        A failure counts as the slowest kernel.
        """
        regrets = [min(self._of.get(self._key(text), self.worst), self.worst) for text in schedules]
        return best_so_far(regrets or [self.worst], length)

    def _key(self, text: str) -> str:
        return text


class Truth(BestKnown):
    """Regrets of one operator's kernels, relative to the fastest kernel of its completely recorded space.

    Schedules with the same kernel share a digest.
    """

    def __init__(self, operator: Operator, hardware: Hardware, space: str, backend: RecordedBackend) -> None:
        """Read the regret of every kernel; ValueError if the table lacks a schedule, or if no program in it succeeded."""
        graph = ConstructionGraph(operator, hardware, space)
        schedules = []
        for schedule in (Schedule(row) for batch in graph.enumerate() for row in batch):  # ends at the first missing one
            if backend.measure(operator, [schedule], hardware)[0].status is Status.NOT_RECORDED:
                raise ValueError(f"the table of {operator} does not hold all of space {space!r}: its best is unknown")
            schedules.append(schedule)
        self._digest = lambda schedule: backend.digest(operator, schedule, hardware)
        found: dict[str, float] = {}
        for schedule in schedules:
            regret = backend.regret(graph, schedule)
            if regret is None:
                raise ValueError(f"nothing in the table of {operator} ran well")
            digest = self._digest(schedule)
            found[digest] = min(regret, found.get(digest, math.inf))
        self._keep(found)
        self._known: dict[str, str] = {}

    @cached_property
    def random(self) -> np.ndarray:
        """Expected regret of the best of k random kernels, drawn without replacement, for k = 1 .. number of kernels."""
        return expected_best(self.regrets)

    def chance(self, length: int) -> np.ndarray:
        """Return the expected regret of the best of k = 1 .. length random kernels; constant once all kernels are drawn."""
        return best_so_far(self.random, length)

    def _key(self, text: str) -> str:
        if text not in self._known:
            self._known[text] = self._digest(Schedule.parse(text))
        return self._known[text]


SIGNIFICANT = 0.05
DIRECTIONS = ("worse", "better", "same")


@dataclass(frozen=True)
class Curves:
    """Curves of one strategy's searches, each float64 [tasks, seeds, trials], and the searches' outcomes.

    A search that ended early keeps its last value.
    """

    regret: np.ndarray
    """log(T / T*) of the best program so far; zero for kernels that are statistically tied with the task's best."""
    seconds: np.ndarray
    """Recorded time of the best program so far; infinite before the first success."""
    elapsed: np.ndarray
    """Seconds that search and recorded measurements took so far."""
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class Scores:
    """Scores of all strategies of a study; `broken` says why a strategy is left out."""

    facts: dict[str, str]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    regrets: tuple[np.ndarray, ...]
    """Regrets of all kernels of each task; without a complete recording, of all kernels that a search tried."""
    curves: dict[str, Curves]
    chance: np.ndarray
    """Expected regret of the best of random kernels drawn without replacement, float64 [tasks, trials]; NaN if unknown."""
    broken: dict[str, str]

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names of the strategies whose searches all completed."""
        return tuple(self.curves)

    def values(self, checkpoints: tuple[int, ...], reference: str) -> Iterator[dict[str, Any]]:
        """Yield a row for each search: regrets at the checkpoints (numbers of trials), and log(T / T of the reference).

        The reference has the same task and seed.
        """
        at = [k - 1 for k in checkpoints]
        other = self.curves.get(reference)
        for name, curves in self.curves.items():
            for i, j in np.ndindex(len(self.tasks), len(self.seeds)):
                with np.errstate(invalid="ignore"):
                    ratio = np.log(curves.seconds[i, j, at] / other.seconds[i, j, at]) if other else np.full(len(at), np.nan)
                yield {
                    "strategy": name, "operator": self.tasks[i], "seed": self.seeds[j], "trials": list(checkpoints),
                    "regret": curves.regret[i, j, at].tolist(),
                    "log_ratio": [float(r) if math.isfinite(r) else None for r in ratio],
                    "chance": [float(c) if math.isfinite(c) else None for c in self.chance[i, at]],
                }  # fmt: skip


def scores_of(settings: Settings, outcomes: dict[str, Outcome], results: Results) -> Scores:
    """Compute the scores from the trials of all jobs (searches).

    Raise ValueError if a task's table is incomplete, or if the strategies' spaces differ.
    """
    first = settings.jobs[0]
    length = first.budget.trials or 1
    tasks = tuple(dict.fromkeys(job.operator for job in settings.jobs))
    seeds = tuple(dict.fromkeys(job.seed for job in settings.jobs))
    done = [job for job in settings.jobs if outcomes[job.key].status == DONE]
    spaces = list(dict.fromkeys(outcomes[job.key].space for job in done))
    truths = _truths(settings, tasks, spaces, done, results)
    jobs: dict[str, list[Job]] = {}
    for job in settings.jobs:  # by operator, then by seed
        jobs.setdefault(job.strategy, []).append(job)
    errors = {name: [outcomes[job.key].error for job in of if outcomes[job.key].status != DONE] for name, of in jobs.items()}
    broken = {name: of[0] for name, of in errors.items() if of}
    curves = {name: _curves(of, truths, length, outcomes, results) for name, of in jobs.items() if name not in broken}
    facts = {"hardware": first.hardware.name, "device": first.device, "space": ", ".join(spaces), "trials": str(length)}
    stamp = Stamp.REPLICATED if isinstance(settings.backend, RecordedBackend) else Stamp.PREDICTED
    facts |= {"stamp": stamp, "fingerprint": common(job.fingerprint for job in settings.jobs)}
    chance = np.stack([truth.chance(length) for truth in truths]) if truths else np.empty((0, length))
    return Scores(facts, tuple(map(str, tasks)), seeds, tuple(t.regrets for t in truths), curves, chance, broken)


def _truths(
    settings: Settings, tasks: Sequence[Operator], spaces: list[str], done: list[Job], results: Results
) -> Sequence[BestKnown]:
    if not done:
        return []
    if not isinstance(settings.backend, RecordedBackend):
        return [BestKnown(row for job in done if job.operator == op for row in results.rows(job)) for op in tasks]
    if len(spaces) > 1:
        raise ValueError(f"the strategies search spaces {sorted(spaces)}: set `space` to one for all of them")
    return [Truth(op, settings.jobs[0].hardware, spaces[0], settings.backend) for op in tasks]


def _curves(
    jobs: list[Job], truths: Sequence[BestKnown], length: int, outcomes: dict[str, Outcome], results: Results
) -> Curves:
    """Return the curves of one strategy, whose jobs are sorted by task, then by seed."""
    regret, seconds, elapsed, seeds = [], [], [], len(jobs) // len(truths)
    for i, job in enumerate(jobs):
        rows = results.rows(job)
        regret.append(truths[i // seeds].curve([row["schedule"] for row in rows], length))
        times = [row["seconds"] if row["seconds"] is not None else math.inf for row in rows]
        seconds.append(statistics.best_so_far(times or [math.inf], length))
        spent = [row["elapsed_s"] for row in rows][:length] or [0.0]
        elapsed.append(np.array(spent + [spent[-1]] * (length - len(spent))))
    shape = (len(truths), seeds, length)
    ends = tuple(outcomes[job.key] for job in jobs)
    return Curves(np.reshape(regret, shape), np.reshape(seconds, shape), np.reshape(elapsed, shape), ends)


def summarise(
    scores: Scores, checkpoints: tuple[int, ...], reference: str, resamples: int, hypotheses: dict[str, dict[str, str]]
) -> dict[str, Any]:
    """Summarise the scores as a JSON object, from which the page is written.

    `hypotheses` has, by strategy, what was expected before the run.
    """
    at = [k - 1 for k in checkpoints]
    regrets = {name: curves.regret[..., at] for name, curves in scores.curves.items()}
    chance = np.repeat(scores.chance[:, None, at], len(scores.seeds), axis=1)
    lines: dict[str, dict[str, Any]] = {
        name: {"regret": interval(iqm, regret, resamples, crossed=False), **_costs(scores.curves[name])}
        for name, regret in regrets.items()
    }
    known = bool(np.isfinite(chance).all())
    others = dict.fromkeys([reference, *(said.get("beside", reference) for said in hypotheses.values())])
    against = ({"chance": chance} if known else {}) | {name: regrets[name] for name in others if name in regrets}
    for name, other in against.items():
        found = statistics.against({label: regret for label, regret in regrets.items() if label != name}, other, resamples)
        for label, differences in found.items():
            lines[label].setdefault("over", {})[name] = differences
    return {
        "date": now(), **scores.facts, "reference": reference, "checkpoints": list(checkpoints), "seeds": list(scores.seeds),
        "tasks": [
            {"operator": task, "kernels": len(regrets), "part": operators.part_of(operators.parse(task))}
            for task, regrets in zip(scores.tasks, scores.regrets, strict=True)
        ],
        "chance": [statistics.interquartile_best(scores.regrets, k) for k in checkpoints] if known else None,
        "strategies": lines, "broken": scores.broken,
        "hypotheses": {
            name: {**said, "found": _verdicts(lines[name], said.get("beside", reference), said["direction"])}
            for name, said in hypotheses.items() if name in lines and said.get("beside", reference) in lines[name].get("over", {})
        },
    }  # fmt: skip


def _costs(curves: Curves) -> dict[str, Any]:
    ends = curves.outcomes
    names = ("trials", "evaluations", "construction_s", "elapsed_s")
    trials, evaluations, overhead, elapsed = (float(np.mean([getattr(end, name) for end in ends])) for name in names)
    return {
        "trials": trials, "evaluations": evaluations, "overhead_s": overhead, "overhead_a_trial_s": overhead / max(1.0, trials),
        "elapsed_s": elapsed, "training_s": next((end.training_s for end in ends if end.training_s is not None), None),
    }  # fmt: skip


def _verdicts(line: dict[str, Any], reference: str, direction: str) -> list[str]:
    """Judge a hypothesis at every checkpoint: does the strategy differ from the reference in the expected direction?

    The verdict is `as expected`, `the opposite`, `not told apart` (not significant), or `too few tasks` if no p value could be
    significant. If `same` was expected, a significant difference gives `worse` or `better`. Raise ValueError for an unknown
    direction.
    """
    check_known("hypothesis", direction, DIRECTIONS)

    def verdict(value: dict[str, float]) -> str:
        seen = "worse" if value["mean"] > 0 else "better"
        if value["p_least"] > SIGNIFICANT:
            return "too few tasks"
        if value["p_holm"] > SIGNIFICANT:
            return "not told apart"
        return "as expected" if seen == direction else seen if direction == "same" else "the opposite"

    return [verdict(value) for value in line["over"][reference]]
