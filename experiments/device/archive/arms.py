"""The arms of a study, and the programs that each arm would measure first.

An arm's strategy runs its own search with the model's seconds in place of measurements, so no arm is adaptive. Its proposals are
the programs that it would measure, in order and each kernel once.
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
"""Field that marks proposals for an operator from whose times the arm's correction was learned; such operators do not count."""


@dataclass(frozen=True)
class Arm:
    """A strategy of a study with one seed."""

    name: str
    of: str
    seed: int = 0
    hyperparameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """The arms and operators of a study.

    The first `deep` operators get `deep_programs` kernels per arm, all other operators `programs`.
    """

    hardware: str
    operators: tuple[str, ...]
    arms: tuple[Arm, ...]
    programs: int
    deep: int
    deep_programs: int
    rounds: int = 0
    """Interleaved rounds of the winners, if the study sets them; 0 otherwise."""

    def wanted(self, place: int) -> int:
        """Number of kernels of each arm for the operator at index `place`."""
        return self.deep_programs if place < self.deep else self.programs


@cache
def read_study() -> Study:
    """The study of conf/lease.yaml. KeyError for a missing setting."""
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    listed = yaml.safe_load((CONF / f"{content['operators']}.yaml").read_text(encoding="utf-8"))
    return study_of(content, listed["operators"])


def study_of(content: Mapping[str, Any], listed: Iterable[str]) -> Study:
    """The study of a configuration with hardware, arms, programs, deep and deep_programs, on the listed operators."""
    texts = tuple(str(operators.parse(text)) for text in listed)
    arms = tuple(arm for name, given in content["arms"].items() for arm in _arms(name, dict(given)))
    sizes = {name: content[name] for name in ("programs", "deep", "deep_programs", "rounds") if name in content}
    return Study(content["hardware"], texts, arms, **sizes)


def _arms(name: str, given: dict[str, Any]) -> Iterator[Arm]:
    """An arm for each seed; `checkpoints` and `corrections` have one entry per seed."""
    of, seeds = given.pop("of", name), given.pop("seeds", [0])
    several = {one: given.pop(f"{one}s", None) for one in ("checkpoint", "correction")}
    for place, seed in enumerate(seeds):
        own = {one: values[place] for one, values in several.items() if values}
        yield Arm(name, of, seed, {**given, **own})


@cache
def learned_from(correction: str) -> frozenset[str]:
    """Operators from whose times an arm's correction was learned; empty without a correction."""
    return frozenset(read_json(located(correction) / CARD)["operators"] if correction else ())


class KernelsByModel(AnalyticBackend):
    """Analytic backend that identifies programs by their kernels, so that a search makes the same trials as on a device."""

    def __init__(self, predict: Callable[[Any, np.ndarray], np.ndarray] | None = None) -> None:
        """Begin without kernels. `predict` is the strategy's own model, if it has one: (graph, rows) -> seconds."""
        self._predict = predict
        self.made: dict[str, tuple[Schedule, Kernel | Measurement]] = {}
        """Digest -> requested program and its kernel, in the order of requests."""

    def seconds(self, graph: Any, schedule: Any) -> float:
        """Seconds by the strategy's own model, if it has one, otherwise by the analytic model."""
        return float(self._predict(graph, schedule.row[None])[0]) if self._predict else super().seconds(graph, schedule)

    def digest(self, op: Any, schedule: Any, hw: Hardware) -> str:
        """Digest of the kernel, or of the program if no kernel can be made."""
        made = make_kernel(op, schedule, hw)
        self.made.setdefault(made.digest, (schedule, made))
        return made.digest


def proposed(operator: str, arm: Arm, machine: str, count: int) -> list[tuple[dict[str, Any], Kernel | None]]:
    """(row, kernel) of the first `count` different kernels that an arm would measure, with ranks from 1.

    Programs without a kernel also take a rank; their kernel is None.
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
    """Digests, without duplicates, of the fastest program among the first k of each arm and seed."""
    cells: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in proposals:
        if row["rank"] <= k:
            cells[row["arm"], row["seed"]].append(row)
    return list(dict.fromkeys(best for rows in cells.values() if (best := fastest(rows, trials))))


def fastest(rows: Iterable[Row], trials: Mapping[tuple[str, str], Row]) -> str:
    """Digest of the proposal with the fastest trial; empty if no trial succeeded."""
    timed = ((seconds_of(trials.get((row["operator"], row["digest"]), {})), row["digest"]) for row in rows)
    seconds, best = min(timed, default=(math.inf, ""))
    return best if seconds < math.inf else ""


def seconds_of(trial: Row) -> float:
    """Median of a trial's samples (the upper of the middle two, as on the device); infinite if it did not succeed."""
    samples = sorted(trial.get("samples") or [])
    return float(samples[len(samples) // 2]) if trial.get("status") == Status.OK.value and samples else math.inf
