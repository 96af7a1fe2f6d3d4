"""A frozen suite of tasks for comparing agents: tracks with their tasks, budgets and seeds, and the session of a search.

The file `gensor_gym/suites/VERSION.json` defines a suite. A task is bound to its fingerprint: if rules, model or a recorded table
have changed since the suite was frozen, SuiteChanged is raised before anything runs.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym.construction import ConstructionGraph
from gensor_gym.fingerprint import fingerprint
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.records.backend import RecordedBackend
from gensor_gym.measure.records.measured_backend import MeasuredBackend
from gensor_gym.measure.session import Budget, BudgetSpent, SearchSession, Session, Task, TraceRow
from gensor_gym.registry import check_known
from gensor_gym.suites import plans
from gensor_gym.suites.plans import PlanSession
from gensor_gym.suites.session import CandidateSession, LearningSession, ModelFreeSession, OnTrial, SuiteSession

Agent = Callable[[Any, np.random.Generator], object]
"""Type of a function of (session, random generator) that searches by calling the session. The session enforces the budget and
remembers the best program. All randomness comes from the generator."""
VERSIONS = ("v1", "v1.1", "v1.2")


class SuiteChanged(ValueError):
    """Error: a task has changed since the suite was frozen, so results would not be comparable."""


@dataclass(frozen=True)
class SuiteTask:
    """A task of a suite: an operator, or the name of a network, on a machine, in a space, measured by a backend.

    Its `fingerprint` shows changes.
    """

    operator: str
    hardware: str
    space: str
    backend: str
    fingerprint: str
    edition: str
    """Digest of the recorded table with which the task is measured; empty for the model."""
    best: float
    """Seconds of the best program: from a complete table, from a certificate, or only the best known, which may be beaten."""
    certain: bool
    """Whether `best` is the optimum."""
    group: str
    """Group of the task in its track: seen or unseen class, or machine."""

    @property
    def name(self) -> str:
        """Name of the task in results: machine and operator."""
        return f"{self.hardware} {self.operator}"

    def regret(self, seconds: float) -> float:
        """Return log(seconds / best). Infinite if no program was found, negative for a program faster than the best known."""
        return math.log(seconds / self.best)

    def check(self) -> None:
        """Raise SuiteChanged if the task's rules, model or recorded table have changed since the suite was frozen."""
        if (now := _mark(self.operator, self.hardware, self.space)) != self.fingerprint:
            raise SuiteChanged(
                f"{self.name} in space {self.space!r}: rules or model changed since the suite was frozen "
                f"(fingerprint {now}, expected {self.fingerprint}); results would not compare"
            )
        if (edition := _edition(self.hardware, self.backend)) != self.edition:
            raise SuiteChanged(f"{self.name}: its recorded table changed (edition {edition}, expected {self.edition})")


@dataclass(frozen=True)
class Track:
    """Part of a suite: tasks that are searched with the same seeds, budget and rules."""

    suite: str
    name: str
    about: str
    tasks: tuple[SuiteTask, ...]
    seeds: tuple[int, ...]
    budget: Budget
    """Budget of a search: distinct programs measured, evaluations of the model, seconds."""
    model: bool
    """Whether an agent may evaluate the model."""
    steps: int | None
    """Number of environment steps and model evaluations in which an agent learns without previous training; None for searches."""
    candidates: bool = False
    """Whether a search may measure only the recorded programs of its task, `session.candidates`."""

    def __str__(self) -> str:
        """Return name and description of the track, and the number of its tasks."""
        return f"{self.suite}/{self.name}: {self.about}; {len(self.tasks)} tasks"

    __repr__ = __str__

    def session(self, task: SuiteTask, on_trial: OnTrial | None = None) -> Session | PlanSession:
        """Start a search session of a task; a `LearningSession` if the track is for agents that learn.

        SuiteChanged if the task has changed.
        """
        task.check()
        if task.space == plans.SPACE:
            return plans.PlanSession(task.operator, task.hardware, self.budget, on_trial)
        made = Task.of(task.operator, task.hardware, task.backend, task.space)
        if self.steps is not None:
            return LearningSession(made, self.budget, self.steps, on_trial)
        kind = CandidateSession if self.candidates else SuiteSession if self.model else ModelFreeSession
        return kind(made, self.budget, on_trial)

    def run(self, agent: Agent, seeds: tuple[int, ...] | None = None) -> Iterator[dict[str, Any]]:
        """Let an agent search every task with every seed, and yield each `result` when its search ends.

        BudgetSpent ends a search. ValueError for an invalid agent or invalid seeds. A process that the agent forked ends when the
        agent returns in that process.
        """
        if not callable(agent):
            raise ValueError(f"agent {agent!r}: expected a function of (session, random numbers)")
        for seed in () if seeds is None else seeds:
            if not isinstance(seed, int | np.integer) or seed < 0:
                raise ValueError(f"seed {seed!r}: expected whole numbers, 0 or more")
        mine = os.getpid()
        for task in self.tasks:
            for seed in self.seeds if seeds is None else seeds:
                clock = Clock()
                session = self.session(task, clock)
                clock.begin = time.process_time()
                if self.steps is None:
                    session.start()
                try:
                    agent(session, np.random.default_rng(seed))
                except BudgetSpent:
                    pass  # the measurements until then are the result
                finally:
                    if os.getpid() != mine:  # a forked process would write the same results a second time
                        os._exit(0)
                yield self.result(task, seed, session, clock)

    def result(self, task: SuiteTask, seed: int, session: SearchSession[Any], clock: Clock) -> dict[str, Any]:
        """Return the result of a search: its task, the budget spent, the best program, and the regret after each trial.

        `curve` has these regrets. `processor_s` and `asked` are processor seconds and evaluations of the model (or steps) at the
        end of each trial; `worked_s` is processor seconds in total, `elapsed_s` the seconds that count against the budget.
        Without a program regret is infinite and `schedule` None. `learning` is a learning curve, None for a search without
        training.
        """
        seconds = np.array([row.seconds for row in session.trace] or [math.inf])
        curve = [task.regret(float(value)) for value in np.minimum.accumulate(seconds)]
        best = session.best
        return {
            "suite": self.suite, "track": self.name, "task": task.name, "fingerprint": task.fingerprint, "seed": seed,
            "schedule": None if best is None else str(best[0]), "seconds": math.inf if best is None else best[1].seconds,
            "curve": curve, "processor_s": clock.seconds, "asked": [row.evaluations for row in session.trace],
            "learning": session.learning_curve() if isinstance(session, LearningSession) else None,
            "regret": curve[-1], "trials": session.trials, "evaluations": session.evaluations,
            "elapsed_s": round(session.elapsed, 4), "worked_s": clock.now(),
        }  # fmt: skip

    def scores(self, results: list[dict[str, Any]], group: str | None = None) -> np.ndarray:
        """Return the regrets [tasks, seeds] of an agent's results, for the tasks of one group or for all.

        ValueError names missing results, or a result of another suite or track.
        """
        if wrong := [row for row in results if (row["suite"], row["track"]) != (self.suite, self.name)]:
            raise ValueError(f"a result of {wrong[0]['suite']}/{wrong[0]['track']}: expected {self.suite}/{self.name}")
        found = {(row["task"], row["seed"], row["fingerprint"]): row["regret"] for row in results}
        tasks = [task for task in self.tasks if group in (None, task.group)]
        asked = [[(task.name, seed, task.fingerprint) for seed in self.seeds] for task in tasks]
        if missing := [key for row in asked for key in row if key not in found]:
            raise ValueError(f"{len(missing)} results are missing, the first of task, seed and fingerprint {missing[0]}")
        return np.array([[found[key] for key in row] for row in asked])


class Clock:
    """Records how many processor seconds this process has used at the end of each trial.

    Other work on the machine does not add to them.
    """

    def __init__(self) -> None:
        """Start counting now. Setting `begin` moves the start."""
        self.begin = time.process_time()
        self.seconds: list[float] = []

    def now(self) -> float:
        """Return the processor seconds since the start, rounded."""
        return round(time.process_time() - self.begin, 5)

    def __call__(self, row: TraceRow) -> None:
        """Record the processor seconds at the end of a trial."""
        self.seconds.append(self.now())


@dataclass(frozen=True)
class Suite:
    """A version of the suite: its tracks (parts with tasks, budget and rules), by name."""

    version: str
    tracks: Mapping[str, Track]

    def __str__(self) -> str:
        """Return the version of the suite and the names of its tracks, each with the number of its tasks."""
        return f"suite {self.version}: {', '.join(f'{name} ({len(track.tasks)} tasks)' for name, track in self.tracks.items())}"

    __repr__ = __str__

    def check(self) -> None:
        """Raise SuiteChanged if any task has changed."""
        for track in self.tracks.values():
            for task in track.tasks:
                task.check()


def names() -> tuple[str, ...]:
    """Return the names of the available versions of the suite."""
    return VERSIONS


@cache
def get(version: str) -> Suite:
    """Return one version of the suite. ValueError names the available versions."""
    check_known("suite", version, VERSIONS)
    text = (resources.files("gensor_gym.suites") / f"{version}.json").read_text(encoding="utf-8")
    tracks = {name: _track(version, name, plain) for name, plain in json.loads(text).items()}
    return Suite(version, tracks)


def _track(version: str, name: str, plain: dict[str, Any]) -> Track:
    tasks = tuple(SuiteTask(**task) for task in plain["tasks"])
    rules = {field: plain[field] for field in ("model", "steps", "candidates") if field in plain}
    return Track(version, name, plain["about"], tasks, tuple(plain["seeds"]), Budget(**plain["budget"]), **rules)


@cache
def _mark(operator: str, hardware: str, space: str) -> str:
    if space == plans.SPACE:
        return plans.mark(operator, hardware)
    return fingerprint(ConstructionGraph(operator, hardware, space))


@cache
def _edition(hardware: str, backend: str) -> str:
    """Return the digest of the recorded table of a backend; empty for the analytic model."""
    found = get_backend(backend, hw := machines.get(hardware))
    if isinstance(found, MeasuredBackend):
        return found.edition(hw)
    return found.edition if isinstance(found, RecordedBackend) else ""
