"""The winners of all strategies on one operator, timed again together: a comparison reports only these times."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from agents.runs.files import write_text
from agents.runs.settings import short_hash
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.foreign import read_fields
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.native import NativeBackend, make_kernel
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.operators.types import Operator

TORCH = "torch"
FAILURES = (ValueError, RuntimeError, WorkerLost)


@dataclass(frozen=True)
class Comparison:
    """Raw seconds per call by label; sample i of every label comes from the same round. `torch` is a label if it was timed.

    `model` says that the numbers are latencies of a model or a table, one per label, and that nothing was timed.
    """

    operator: str
    samples: dict[str, list[float]]
    dropped: dict[str, str] = field(default_factory=dict)
    """Label -> why its kernel could not be timed again."""
    model: bool = False
    busy: float = 0.0
    """Share of the processors that other programs used just before the timing. If it is far from 0, times and ratios mislead."""
    processes: list[int] = field(default_factory=list)
    """Number of consecutive samples from each timing process; empty if there was one process."""


@dataclass(frozen=True)
class Retimer:
    """Times winners together, and keeps the samples in a folder so that the same comparison is not repeated."""

    backend: Backend
    hardware: Hardware
    rounds: int
    """Number of interleaved samples of each candidate."""
    folder: Path
    torch_threads: int | None = None
    """Number of torch's threads, by default the number of the kernels' threads."""
    processes: int = 1
    """Number of fresh processes that share the rounds."""

    @property
    def shares(self) -> list[int]:
        """Number of rounds for each process; there are fewer processes if there are fewer rounds."""
        count = min(self.processes, self.rounds)
        return [self.rounds // count + (place < self.rounds % count) for place in range(count)]

    def compare(self, op: Operator, winners: Mapping[str, tuple[Schedule, float]]) -> Comparison:
        """Time the winners (label -> schedule and the seconds its search measured) and torch in interleaved rounds."""
        if not isinstance(self.backend, NativeBackend):
            return Comparison(str(op), {label: [seconds] for label, (_, seconds) in winners.items()}, model=True)
        return self.compare_kernels(op, *self.kernels(op, {label: schedule for label, (schedule, _) in winners.items()}))

    def compare_kernels(self, op: Operator, kernels: Mapping[str, Kernel], dropped: Mapping[str, str]) -> Comparison:
        """Like `compare`, for kernels by label; the backend must run kernels. `dropped` has reasons for missing kernels."""
        dropped = dict(dropped)
        digests = {label: kernel.digest for label, kernel in kernels.items()}
        names = {**digests, TORCH: TORCH}
        what: list[object] = [str(op), self.backend.device(self.hardware), digests, self.rounds, self.torch_threads or 0]
        name = short_hash([*what, self.shares] if len(self.shares) > 1 else what)
        path = self.folder / f"{name}.json"
        if path.exists():
            return read_fields(path, Comparison)
        distinct = {kernel.digest: kernel for kernel in kernels.values()}
        busy = busy_share()
        samples, faults = self._time(distinct)
        found = {label: samples[digest] for label, digest in names.items() if digest in samples}
        dropped |= {label: faults[digest] for label, digest in names.items() if digest in faults}
        result = Comparison(str(op), found, dropped, busy=busy, processes=self.shares)
        if not dropped:
            write_text(path, json.dumps(dataclasses.asdict(result)))
        return result

    def kernels(self, op: Operator, schedules: Mapping[str, Schedule]) -> tuple[dict[str, Kernel], dict[str, str]]:
        """(generated kernels by label, reasons for missing kernels by label)."""
        made = {label: make_kernel(op, schedule, self.hardware) for label, schedule in schedules.items()}
        kernels = {label: kernel for label, kernel in made.items() if isinstance(kernel, Kernel)}
        return kernels, {label: why.error for label, why in made.items() if not isinstance(why, Kernel)}

    def _time(self, kernels: dict[str, Kernel]) -> tuple[dict[str, list[float]], dict[str, str]]:
        """(samples by digest, with torch's on this machine; errors by digest of the kernels that failed)."""
        torch = self.backend.name in ("cpu", "cuda")
        if not kernels:
            return {}, {}
        try:
            return self._whole(kernels, torch), {}
        except FAILURES:
            faults: dict[str, str] = {}
            for name, kernel in kernels.items():  # find kernels that fail alone
                faults |= self._fault(name, {name: kernel}, torch=False)
        good = {name: kernel for name, kernel in kernels.items() if name not in faults}
        if good and torch:
            faults |= self._fault(TORCH, dict([next(iter(good.items()))]), torch=True)
        return (self._whole(good, torch and TORCH not in faults) if good else {}), faults

    def _whole(self, kernels: dict[str, Kernel], torch: bool) -> dict[str, list[float]]:
        """Samples of all rounds, from processes started in order, because each start places code and data at new addresses."""
        found: dict[str, list[float]] = {}
        for share in self.shares:
            if found:
                cast(NativeBackend, self.backend).pool.close()
            for name, samples in self._compare(kernels, share, torch).items():
                found.setdefault(name, []).extend(samples)
        return found

    def _compare(self, kernels: dict[str, Kernel], rounds: int, torch: bool) -> dict[str, list[float]]:
        return cast(NativeBackend, self.backend).compare(kernels, self.hardware, rounds, torch, torch_threads=self.torch_threads)

    def _fault(self, name: str, kernels: dict[str, Kernel], torch: bool) -> dict[str, str]:
        """{name: error} if a comparison of one round fails, otherwise {}."""
        try:
            self._compare(kernels, 1, torch)
        except FAILURES as error:
            return {name: str(error).strip().splitlines()[-1]}
        return {}


def busy_share() -> float:
    """Share of all processors in use while this process sleeps for a moment; 0 if the system does not report it."""
    idle, _, before = ticks()
    time.sleep(0.25)
    later, _, after = ticks()
    return 1.0 - (later - idle) / (after - before) if after > before else 0.0


def ticks() -> tuple[int, int, int]:
    """(idle, stolen, all) ticks of all processors since boot; zeros if the system does not report them."""
    if not (stat := Path("/proc/stat")).exists():
        return 0, 0, 0
    fields = [*map(int, stat.read_text().splitlines()[0].split()[1:9]), 0][:8]
    return fields[3] + fields[4], fields[7], sum(fields)
