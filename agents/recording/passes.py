"""Record a task's programs in passes. Each pass measures all programs in a random order of its own, which makes drift visible.

Every measurement is stored before the next begins, and a killed recording resumes without repeating measurements. Schedules with
equal kernels count as one program.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agents.cli.checks import check_whole
from agents.runs.journal import append_row, read_rows
from agents.runs.schedules import schedules_of
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.construction import ConstructionGraph
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import get_backend
from gensor_gym.measure.device_trials import device_backends, one_trial
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import GPU_WARMUP, NativeBackend, cpu_backend, make_kernel
from gensor_gym.measure.records.backend import passes_of
from gensor_gym.measure.records.store import Record, Selection, Store
from gensor_gym.measure.stats.apart import protocol_of
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.requests import Built
from gensor_gym.operators.types import Operator

BATCH = 16
"""Number of kernels that are compiled at a time and then timed. Nothing is compiled while a kernel is timed."""
MOOD = (Status.TIMEOUT, Status.CRASHED)
"""Statuses of a trial that the machine may have caused, so that the program is tried again."""
ATTEMPTS = 3
"""Maximum number of attempts at a program with a transient status."""
BUDGET = 8.0
"""Maximum number of seconds for a program's samples in one pass. The worker's deadline is 10."""


@dataclass(frozen=True)
class Plan:
    """Settings of a recording of one operator.

    `schedules` is the number of random schedules, or None for all schedules of the space.
    """

    operator: Operator
    hardware: Hardware
    space: str
    schedules: int | None = None
    passes: int = 3
    samples: int = 5
    anchor: int = 100
    """Number of trials between two timings of the anchor, the kernel that is timed repeatedly to show drift."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(vars(self), 1, "passes", "samples", "anchor", "schedules", null=("schedules",))

    @property
    def complete(self) -> bool:
        """Whether the whole space is to be recorded."""
        return self.schedules is None


def backend_of(hw: Hardware, samples: int) -> NativeBackend:
    """Make the backend that times kernels on `hw` with `samples` samples per trial. ValueError if that device is not present."""
    get_backend("auto", hw)
    warmup = GPU_WARMUP if hw.kind == "gpu" else TimingRules.warmup
    rules = TimingRules(budget=BUDGET, warmup=warmup, precision=0.0, least=samples, most=samples)
    return cpu_backend(rules) if hw.kind == "cpu" else device_backends(rules)[0]


class Recording:
    """The recording of one task in passes over all its programs; its store has the measurements so far."""

    def __init__(self, plan: Plan, store: Store, device: str, anchors: Path) -> None:
        """Generate the kernels of the task. `device` is part of the store's key.

        Times of the anchor, a kernel that is timed repeatedly to show drift, are written to the file `anchors`.
        """
        self.plan, self.device = plan, device
        self._store, self._anchors = store, anchors
        self.schedules = schedules_of(plan.operator, plan.hardware, plan.space, plan.schedules, plan.seed)
        made = [make_kernel(plan.operator, schedule, plan.hardware) for schedule in self.schedules]
        self.digests = [item.digest for item in made]
        self._first = dict(zip(reversed(self.digests), reversed(self.schedules), strict=True))
        self.known = {record.measurement.digest: record.measurement for record in self.stored()}
        self._kernels = {item.digest: item for item in made if isinstance(item, Kernel)}
        for item in made:
            if isinstance(item, Measurement) and item.digest not in self.known:
                self._put(replace(item, conditions={"passes": []}))

    @property
    def programs(self) -> int:
        """Number of distinct kernels of the task."""
        return len(self._kernels)

    @property
    def left(self) -> int:
        """Number of trials that are still to be made."""
        return sum(self._pending(digest, number) for number in self._numbers() for digest in self._kernels)

    @property
    def protocol(self) -> int:
        """Version of the timing protocol of the trials."""
        return protocol_of(self.plan.operator)

    def stored(self) -> list[Record]:
        """Return the store's records of this task that a recording made, without the trials of searches."""
        found = self._store.records(Selection(str(self.plan.operator), self.device, self.protocol))
        return [record for record in found if "passes" in record.measurement.conditions]

    @property
    def anchors(self) -> list[dict]:
        """Timings of the anchor (the kernel that shows drift) so far, one row each.

        A row has `at` in seconds since 1970, `pass`, `status`, and `samples` in seconds.
        """
        return read_rows(self._anchors)

    def run(self, backend: NativeBackend, on_trial: Callable[[Measurement], None] = lambda _: None) -> None:
        """Measure the missing programs; call `on_trial` with each stored measurement."""
        anchor, since = self._anchor(), self.plan.anchor
        for number in (*self._numbers(), *self._numbers()):  # the second round repeats transient failures
            pending = self._order(number)
            for batch in (pending[i : i + BATCH] for i in range(0, len(pending), BATCH)):
                for built in backend.compile([self._kernels[digest] for digest in batch]):
                    if since >= self.plan.anchor and anchor is not None:
                        self._time_anchor(backend, anchor, number)
                        since = 0
                    since += 1
                    on_trial(self._trial(backend, built, number))

    def _numbers(self) -> range:
        return range(1, self.plan.passes + 1)

    def _order(self, number: int) -> list[str]:
        order = np.random.default_rng([self.plan.seed, number]).permutation(len(self._kernels))
        digests = list(self._kernels)
        return [digests[i] for i in order if self._pending(digests[i], number)]

    def _pending(self, digest: str, number: int) -> bool:
        known = self.known.get(digest)
        if known is None:
            return True
        if known.status is not Status.OK and known.status not in MOOD:
            return False
        lost = known.conditions.get("lost", 0)
        return number not in passes_of(known) and isinstance(lost, int) and lost < ATTEMPTS

    def _trial(self, backend: NativeBackend, built: Built | Measurement, number: int) -> Measurement:
        digest = built.digest if isinstance(built, Measurement) else built.kernel.digest
        begin = time.perf_counter()
        found = one_trial(backend, built, self.plan.hardware)
        joined = join(self.known.get(digest), found, number, time.perf_counter() - begin)
        self._put(joined)
        return joined

    def _put(self, measurement: Measurement) -> None:
        op, schedule = str(self.plan.operator), str(self._first[measurement.digest])
        self._store.put(self.device, op, schedule, measurement, self.protocol)
        self.known[measurement.digest] = measurement

    def _anchor(self) -> Kernel | None:
        """Return the anchor, which is the kernel that is fastest by the model; None if no kernel was generated."""
        if not self._kernels:
            return None
        graph = ConstructionGraph(self.plan.operator, self.plan.hardware, self.plan.space)
        return self._kernels[min(self._kernels, key=lambda digest: graph.latency(self._first[digest]))]

    def _time_anchor(self, backend: NativeBackend, kernel: Kernel, number: int) -> None:
        (built,) = backend.compile([kernel])
        found = one_trial(backend, built, self.plan.hardware)
        row = {"at": time.time(), "pass": number, "status": found.status.value, "samples": list(found.samples)}
        append_row(self._anchors, row)


def join(before: Measurement | None, found: Measurement, number: int, run_seconds: float) -> Measurement:
    """Return the record of a program after pass `number`: the earlier record joined with the new measurement.

    `passes` has the pass of every sample. `compile_seconds` is that of the first pass. `trial_seconds` adds the mean time of
    loading, verifying and timing. After a crash or timeout, earlier successful passes are kept, and `lost` counts
    one more failed pass.
    """
    old: dict[str, Any] = before.conditions if before is not None else {}
    good = before is not None and before.status is Status.OK
    kept = before.samples if before is not None and good else ()
    lost = {"lost": old["lost"]} if "lost" in old else {}
    if found.status in MOOD:
        lost = {"lost": old.get("lost", 0) + 1}
        if before is not None and good:
            return replace(before, conditions=old | lost)
        return replace(found, conditions={"passes": [], **lost})
    if found.status is not Status.OK:
        return replace(found, samples=(), conditions=found.conditions | lost | {"passes": []})
    new: dict[str, Any] = found.conditions | lost
    new["run_seconds"] = [*old["run_seconds"], run_seconds] if good else [run_seconds]
    new["compile_seconds"] = (old if good else found.conditions)["compile_seconds"]
    new["trial_seconds"] = new["compile_seconds"] + statistics.fmean(new["run_seconds"])
    new["passes"] = [*(old["passes"] if good else []), *[number] * len(found.samples)]
    return replace(found, samples=(*kept, *found.samples), conditions=new)
