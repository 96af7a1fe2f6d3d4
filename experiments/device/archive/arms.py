"""The arms of a study (each a strategy with a seed), and the programs that each arm would measure first.

An arm's strategy runs its own search with the model's seconds in place of measurements, so no arm adapts to measurements. Its
proposals are the programs that it would measure, in order and each kernel once.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import yaml

from agents import get_strategy
from agents.optimizer import run as search
from agents.policies.card import CARD
from experiments.device.table import CONF
from gensor_gym import hardware, operators
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.foreign import read_json
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.locate import located
from gensor_gym.measure.analytic import AnalyticBackend
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import make_kernel
from gensor_gym.measure.session import Budget, Session, Task, TraceRow

FILE = CONF / "lease.yaml"
Row = Mapping[str, Any]
SEEN = "seen"
"""Field of proposals for an operator from whose times the arm's model was learned; such operators do not count."""


@dataclass(frozen=True)
class Arm:
    """One arm of a study: a strategy with its hyperparameters and one seed.

    `name` is the arm's name in the study, and `of` the strategy's registered name.
    """

    name: str
    of: str
    seed: int = 0
    hyperparameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """What a study times on a GPU: the kernels that its arms propose for its operators.

    The first `deep` operators get `deep_programs` kernels per arm, all other operators `programs`.
    """

    hardware: str
    operators: tuple[str, ...]
    arms: tuple[Arm, ...]
    programs: int
    deep: int
    deep_programs: int
    rounds: int = 0
    """Number of rounds in which the winners are timed together, if the study sets it; 0 otherwise."""

    def wanted(self, place: int) -> int:
        """Return the number of kernels that each arm proposes for the operator at index `place`."""
        return self.deep_programs if place < self.deep else self.programs


@cache
def read_study() -> Study:
    """Read the study of conf/lease.yaml; raise KeyError for a missing setting."""
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    listed = yaml.safe_load((CONF / f"{content['operators']}.yaml").read_text(encoding="utf-8"))
    return study_of(content, listed["operators"])


def study_of(content: Mapping[str, Any], listed: Iterable[str]) -> Study:
    """Return the study on the listed operators that a configuration describes.

    The configuration has the entries hardware, arms, programs, deep, deep_programs and, optionally, rounds.
    """
    texts = tuple(str(operators.parse(text)) for text in listed)
    arms = tuple(arm for name, given in content["arms"].items() for arm in _arms(name, dict(given)))
    sizes = {name: content[name] for name in ("programs", "deep", "deep_programs", "rounds") if name in content}
    return Study(content["hardware"], texts, arms, **sizes)


def _arms(name: str, given: dict[str, Any]) -> Iterator[Arm]:
    """Yield an arm for each seed of a strategy; its lists `checkpoints` and `corrections` have one entry per seed."""
    of, seeds = given.pop("of", name), given.pop("seeds", [0])
    several = {one: given.pop(f"{one}s", None) for one in ("checkpoint", "correction")}
    for place, seed in enumerate(seeds):
        own = {one: values[place] for one, values in several.items() if values}
        yield Arm(name, of, seed, {**given, **own})


@cache
def learned_from(correction: str) -> frozenset[str]:
    """Return the operators from whose times a learned correction of the model was trained; none if `correction` is empty."""
    return frozenset(read_json(located(correction) / CARD)["operators"] if correction else ())


class KernelsByModel(AnalyticBackend):
    """Backend that answers trials by the model, but distinguishes programs by their kernels, as a device does.

    So a search makes the same trials as on a device.
    """

    def __init__(self, predict: Callable[[Any, np.ndarray], np.ndarray] | None = None) -> None:
        """Begin without kernels; `predict` is the strategy's own model, (graph, rows) -> seconds, if it has one."""
        self._predict = predict
        self.made: dict[str, tuple[Schedule, Kernel | Measurement]] = {}
        """Digest -> requested schedule and its kernel, in the order of requests."""

    def seconds(self, graph: Any, schedule: Any) -> float:
        """Return a schedule's seconds by the strategy's own model if it has one, otherwise by the analytic model."""
        return float(self._predict(graph, schedule.row[None])[0]) if self._predict else super().seconds(graph, schedule)

    def digest(self, op: Any, schedule: Any, hw: Hardware) -> str:
        """Generate and keep a schedule's kernel; return its digest, or that of the program if no kernel can be made."""
        made = make_kernel(op, schedule, hw)
        self.made.setdefault(made.digest, (schedule, made))
        return made.digest


def proposed(operator: str, arm: Arm, machine: str, count: int) -> list[tuple[dict[str, Any], Kernel | None]]:
    """Return the first `count` different kernels that an arm (a strategy with a seed) would measure, each as (row, kernel).

    Rows have ranks from 1. A program for which no kernel can be made takes a rank, too; its kernel is None.
    """
    hw, strategy = hardware.get(machine), get_strategy(arm.of, **arm.hyperparameters)
    backend = KernelsByModel(getattr(strategy, "predict", None))
    task = Task.of(operator, hw, backend, strategy.space)
    trace: list[TraceRow] = []
    session = Session(task, Budget(trials=count), on_trial=trace.append)
    begin = time.perf_counter()
    search(strategy, session, arm.seed)
    seconds = time.perf_counter() - begin - session.measuring
    tried = {str(schedule): made for schedule, made in backend.made.values()}
    about: dict[str, Any] = {"group": "study", "operator": str(task.operator), "arm": arm.name, "seed": arm.seed}
    if str(task.operator) in learned_from(str(arm.hyperparameters.get("correction", ""))):
        about[SEEN] = True
    cost = {"construct_s": seconds, "evaluations": session.evaluations}
    found: list[tuple[dict[str, Any], Kernel | None]] = []
    for rank, trial in enumerate(trace, 1):
        row, made = {**about, "rank": rank, "schedule": trial.schedule, **cost}, tried[trial.schedule]
        if isinstance(made, Kernel):
            found.append(({**row, "digest": made.digest, "status": "", "error": ""}, made))
        else:
            found.append(({**row, "digest": "", "status": made.status.value, "error": made.error}, None))
    return found


def winners(proposals: Iterable[Row], trials: Mapping[tuple[str, str], Row], k: int) -> list[str]:
    """Return the digest of the fastest kernel among the first k proposals of each arm and seed, without duplicates.

    `trials` has the timed trials by (operator, digest).
    """
    cells: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in proposals:
        if row["rank"] <= k:
            cells[row["arm"], row["seed"]].append(row)
    return list(dict.fromkeys(best for rows in cells.values() if (best := fastest(rows, trials))))


def fastest(rows: Iterable[Row], trials: Mapping[tuple[str, str], Row]) -> str:
    """Return the digest of the proposal whose trial was fastest; empty if no trial succeeded."""
    timed = ((seconds_of(trials.get((row["operator"], row["digest"]), {})), row["digest"]) for row in rows)
    seconds, best = min(timed, default=(math.inf, ""))
    return best if seconds < math.inf else ""


def seconds_of(trial: Row) -> float:
    """Return the median of a trial's samples in seconds, of an even number the upper of the middle two; infinite if it failed."""
    samples = sorted(trial.get("samples") or [])
    return float(samples[len(samples) // 2]) if trial.get("status") == Status.OK.value and samples else math.inf
