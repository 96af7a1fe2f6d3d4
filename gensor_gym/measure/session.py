"""Arguments of a strategy: a task, a budget, and a session that measures, predicts, records trials and keeps the budget."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Generic

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym.codegen.families import family_of, graph_of
from gensor_gym.codegen.targets import target_of
from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.answers.fused import check_size
from gensor_gym.measure.backend import Backend, get_backend
from gensor_gym.measure.measurement import UNTIMED, Measurement, Status
from gensor_gym.measure.records.backend import warn_of_gap
from gensor_gym.measure.records.store import FINAL, IMPORTED, SEARCHED, Selection, Store
from gensor_gym.measure.search import Node, SearchBackend, SearchGraph, SearchTask
from gensor_gym.measure.stats.apart import protocol_of
from gensor_gym.operators.types import Operator

NUMBER = {Real: "number", Integral: "integer"}
MOODS = (Status.TIMEOUT, Status.CRASHED, Status.IMPLAUSIBLE)
"""Statuses that may come from noise or the machine's state. Such trials are repeated, and never read from the store."""


class BudgetSpent(Exception):
    """The search's budget is spent. The session keeps all trials in `trace`, and the fastest program in `best`."""


@dataclass(frozen=True)
class Task:
    """Task of a search: an operator on a hardware, timed by a backend, with schedules of a space.

    `Task.of` also accepts texts.
    """

    operator: Operator | Dataflow
    hardware: Hardware
    backend: str | Backend = "auto"
    space: str = "gensor"

    @classmethod
    def of(
        cls,
        operator: Operator | Dataflow | str,
        hardware: Hardware | str = "host",
        backend: str | Backend = "auto",
        space: str = "gensor",
    ) -> Task:
        """Make a task from objects, texts or ids; ValueError for an unknown text or id."""
        return cls(resolve_computation(operator), machines.get(hardware), backend, space)

    def graph(self) -> Any:
        """Return the graph of the task's schedules: a `ConstructionGraph`, or a `GirGraph` for a fused operator."""
        return graph_of(self.operator, self.hardware, self.space)


@dataclass(frozen=True)
class Budget:
    """Limits of a search: number of distinct kernels, number of evaluations of the model, elapsed seconds. None: no limit."""

    trials: int | None = None
    evaluations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Check the limits; ValueError unless each is None or a positive number."""
        for name in ("trials", "evaluations", "seconds"):
            value = getattr(self, name)
            kind: Any = Real if name == "seconds" else Integral
            if value is not None and not (isinstance(value, kind) and value > 0):
                raise ValueError(f"budget {name} must be a positive {NUMBER[kind]} or None, got {value!r}")


@dataclass(frozen=True)
class TraceRow:
    """One trial of a search, failures included.

    `elapsed_s` (seconds) and `evaluations` (of the model) count from the start of the session to the end of the trial. `seconds`
    is the kernel's time, infinite unless the status is OK.
    """

    trial: int
    elapsed_s: float
    schedule: str
    seconds: float
    status: str
    evaluations: int


class SearchSession(Generic[Node]):
    """Measures schedules for one search: it charges the budget, records each trial, and remembers the best program.

    A trial is a distinct kernel digest, failures included. A schedule whose kernel was tried in this session costs nothing. A
    kernel from the store counts as a trial, so a search does not depend on the store's content. Elapsed time is the session's own
    clock, plus the recorded seconds (`trial_seconds` in the conditions) of each trial that the store or a recorded table answers.
    So a budget in seconds is spent as if these trials ran now.
    """

    def __init__(
        self,
        task: SearchTask,
        graph: SearchGraph[Node],
        backend: SearchBackend[Node],
        budget: Budget,
        store: Store | str | Path | None = None,
        on_trial: Callable[[TraceRow], None] | None = None,
    ) -> None:
        """Make a session for a task. The clock starts at the first use. `on_trial` is called with every new row of the trace.

        With a `store`, measurements are read from it and written to it.
        """
        self.task, self.graph, self.backend, self.budget = task, graph, backend, budget
        self.trace: list[TraceRow] = []
        self.evaluations = 0
        """Number of evaluations of the model so far. Only a `Session` counts them."""
        self.measuring = 0.0
        """Seconds spent inside `measure` (code generation, compilation, verification, timing)."""
        self.times = True
        """Whether this search compares times. If so, kernels that the store has only verified (`UNTIMED`) are measured again."""
        self.verified_here: set[str] = set()
        """Digests of the kernels that this session verified itself, without the store."""
        self._on_trial = on_trial
        self._store = Store(store) if isinstance(store, (str, Path)) else store
        self._device, self._protocol = self.backend.device(task.hardware), protocol_of(task.operator)
        self._seen: dict[str, Measurement] = {}
        self._best: tuple[Node, Measurement] | None = None
        self._start: float | None = None
        self._credited = 0.0

    @property
    def trials(self) -> int:
        """Return the number of trials so far."""
        return len(self.trace)

    @property
    def best(self) -> tuple[Node, Measurement] | None:
        """Return (fastest OK node, its measurement); None before the first OK trial.

        The earlier of two equally fast nodes counts.
        """
        return self._best

    @property
    def elapsed(self) -> float:
        """Return the seconds since the first use, plus the recorded seconds of trials that the store or a table answered."""
        return 0.0 if self._start is None else time.perf_counter() - self._start + self._credited

    def measure(self, schedules: Sequence[Node]) -> list[Measurement]:
        """Measure schedules in order. BudgetSpent if the first schedule is new and no budget is left.

        A batch that exceeds the budget is cut: the call returns the measurements of its first schedules, and the next call
        raises.
        """
        self.start()
        begin = time.perf_counter()
        try:
            return self._answer(schedules)
        finally:
            self.measuring += time.perf_counter() - begin

    def _answer(self, schedules: Sequence[Node]) -> list[Measurement]:
        op, hw = self.task.operator, self.task.hardware
        digests = [self.backend.digest(op, schedule, hw) for schedule in schedules]
        fresh: dict[str, Node] = {}
        allowed = len(digests)
        left = self._trials_left()
        for position, (digest, schedule) in enumerate(zip(digests, schedules, strict=True)):
            if digest in self._seen or digest in fresh:
                continue
            if len(fresh) >= left:
                allowed = position
                break
            fresh[digest] = schedule
        if schedules and allowed == 0:
            raise BudgetSpent(self._spent_text())
        done = self._try(fresh)
        answers = []
        for digest in digests[:allowed]:
            if digest not in done and digest not in self._seen:
                break  # the seconds were spent within the batch
            answers.append(self._seen[digest])
        return answers

    def start(self) -> None:
        """Start the clock if it is not running, so that the time before the first evaluation counts."""
        if self._start is None:
            self._start = time.perf_counter()

    def _seconds_out(self) -> bool:
        return self.budget.seconds is not None and self.elapsed >= self.budget.seconds

    def _trials_left(self) -> float:
        if self._seconds_out():
            return 0
        return float("inf") if self.budget.trials is None else self.budget.trials - self.trials

    def _spent_text(self) -> str:
        trials, seconds = self.budget.trials, self.budget.seconds
        return f"{self.trials} of {trials} trials and {self.elapsed:.1f} of {seconds} seconds spent"

    def _try(self, fresh: dict[str, Node]) -> set[str]:
        """Get the measurements of kernels that this session has not tried, and record each as a trial.

        `fresh` maps a kernel's digest to its schedule. A measurement comes from the store or, if it has none, from the backend.
        The method stops when the budget's seconds are spent. Return the digests of the kernels that have a measurement now.
        """
        op, hw = self.task.operator, self.task.hardware
        known = {digest: self._stored(digest) for digest in fresh}
        missing = [schedule for digest, schedule in fresh.items() if known[digest] is None]
        stream = self.backend.stream(op, missing, hw)
        done: set[str] = set()
        for digest, schedule in fresh.items():
            if done and self._seconds_out():
                break
            found = known[digest]
            if found is None:
                before = time.perf_counter()
                found = next(stream)
                self._put(schedule, found, time.perf_counter() - before)
                if found.status is Status.OK:
                    self.verified_here.add(digest)
            if known[digest] is not None or not self.backend.stored:  # the answer was measured earlier
                seconds = found.conditions.get("trial_seconds")
                self._credited += seconds if isinstance(seconds, float) else 0.0
            self._record(digest, schedule, found)
            done.add(digest)
        return done

    def _stored(self, digest: str) -> Measurement | None:
        """Return the store's measurement of a kernel; None if there is none that this search can use.

        Not usable are measurements from another user or compiler, of kernels that were only verified, and with the status
        TIMEOUT, CRASHED or IMPLAUSIBLE, which may come from noise.
        """
        if self._store is None or not self.backend.stored:
            return None
        found = self._store.get(digest, self._device, self._protocol)
        if found is None or found.status in MOODS or found.conditions.get(IMPORTED):
            return None
        if self.times and found.conditions.get(UNTIMED):
            return None
        return found if found.conditions.get("compiler") in (None, self._compiler) else None

    @cached_property
    def _compiler(self) -> str:
        return target_of(self.task.hardware).compiler()

    def _put(self, schedule: Node, measurement: Measurement, seconds: float) -> None:
        """Write a new measurement to the store, with the trial's `seconds` unless the backend has noted them."""
        if self._store is None or not self.backend.stored:
            return
        conditions = {"trial_seconds": seconds, **measurement.conditions}
        kept = Measurement(measurement.status, measurement.samples, conditions, measurement.error, measurement.digest)
        self._store.put(self._device, str(self.task.operator), str(schedule), kept, self._protocol)

    def keep(self, schedule: Node, measurement: Measurement) -> None:
        """Mark a program in the store as the result of a search, so that `tuned` prefers it to faster trials.

        Programs that earlier searches marked, and that this search measured too, have lost against this program and are unmarked.
        The budget in trials is recorded with the program, unless the seconds were spent first.
        """
        if self._store is None or not self.backend.stored:
            return
        name = str(self.task.operator)
        for record in list(self._store.records(Selection(name, self._device, self._protocol))):
            lost = record.measurement
            if lost.conditions.get(FINAL) and lost.digest in self._seen and lost.digest != measurement.digest:
                conditions = {key: value for key, value in lost.conditions.items() if key != FINAL}
                self._store.put(self._device, name, record.schedule, replace(lost, conditions=conditions), self._protocol)
        stored = self._store.get(measurement.digest, self._device, self._protocol) or measurement
        before, given = stored.conditions.get(SEARCHED), 0 if self._seconds_out() else self.budget.trials or 0
        searched = max(before if isinstance(before, int) else 0, given, self.trials)
        noted = replace(stored, conditions={**stored.conditions, FINAL: True, SEARCHED: searched})
        self._store.put(self._device, name, str(schedule), noted, self._protocol)

    @property
    def first_error(self) -> str:
        """Return the error text of the first failed trial; empty if none failed."""
        return next((measurement.error for measurement in self._seen.values() if measurement.error), "")

    def _record(self, digest: str, schedule: Node, measurement: Measurement) -> None:
        self._seen[digest] = measurement
        row = TraceRow(
            self.trials, self.elapsed, str(schedule), measurement.seconds, measurement.status.value, self.evaluations
        )
        self.trace.append(row)
        if self._on_trial is not None:
            self._on_trial(row)
        if measurement.status is Status.OK and (self._best is None or measurement.seconds < self._best[1].seconds):
            self._best = (schedule, measurement)


class Session(SearchSession[Schedule]):
    """A session that measures schedules of an operator. The budget also limits evaluations of the graph's analytic model."""

    task: Task
    graph: ConstructionGraph
    backend: Backend

    def __init__(
        self,
        task: Task,
        budget: Budget,
        store: Store | str | Path | None = None,
        on_trial: Callable[[TraceRow], None] | None = None,
    ) -> None:
        """Get the backend and build the graph. `on_trial` is called with every new row of the trace.

        ValueError for a fused operator that is too large to be verified, if the backend verifies kernels.
        """
        backend = get_backend(task.backend, task.hardware)
        if backend.stored:
            check_size(task.operator)
        super().__init__(task, task.graph(), backend, budget, store, on_trial)
        self.graph.meter = _weakly(self.charge)
        if isinstance(task.operator, Operator):
            warn_of_gap(backend, [task.operator], self.graph.space)

    def measure(self, schedules: Sequence[Schedule]) -> list[Measurement]:
        """Measure schedules as `SearchSession` does; ValueError unless they are a list of schedules of this graph."""
        kind = family_of(self.task.operator).schedules[self.task.hardware.kind]
        if isinstance(schedules, kind) or not all(isinstance(one, kind) for one in schedules):
            raise ValueError(f"measure {schedules!r}: expected a list of {kind.__name__}, such as session.graph.initial() is one")
        return super().measure(schedules)

    def predict(self, schedules: Sequence[Schedule] | np.ndarray) -> np.ndarray:
        """Predict the seconds of schedules, or of rows int32 [B, ROW]: float64 [B]. The budget is charged.

        BudgetSpent before any evaluation, if the budget allows fewer evaluations.
        """
        rows = schedules if isinstance(schedules, np.ndarray) else self.graph.stack(list(schedules))
        return self.graph.latencies(np.ascontiguousarray(rows, dtype=np.int32))

    def charge(self, evaluations: int) -> None:
        """Charge evaluations of the model to the budget. The graph (`ConstructionGraph.charge`) does this for every caller.

        BudgetSpent if the budget allows fewer evaluations, or if its seconds are spent.
        """
        self.start()
        limit = self.budget.evaluations
        if limit is not None and self.evaluations + evaluations > limit:
            raise BudgetSpent(f"{self.evaluations} of {limit} model evaluations spent, {evaluations} more asked for")
        if self._seconds_out():
            raise BudgetSpent(self._spent_text())
        self.evaluations += evaluations


def _weakly(method: Callable[[int], None]) -> Callable[[int], None]:
    """Wrap a bound method in a function that does nothing once the method's object is deleted.

    The function holds the object weakly; otherwise session and graph would keep each other alive.
    """
    reference = weakref.WeakMethod(method)

    def call(evaluations: int) -> None:
        if (alive := reference()) is not None:
            alive(evaluations)

    return call
