"""Times that a comparison reports: winners of all strategies on one operator, timed again together and interleaved."""

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
    """Raw seconds per call of each winner, by its label, and of `torch` if it was timed.

    Sample i of every label comes from the same round. `model` says that the numbers are latencies of a model or a table, one per
    label, and that nothing was timed.
    """

    operator: str
    samples: dict[str, list[float]]
    dropped: dict[str, str] = field(default_factory=dict)
    """Label -> reason why its kernel could not be timed again."""
    model: bool = False
    busy: float = 0.0
    """Share of the processors in use by other programs just before the timing. Far from 0, times and ratios mislead."""
    processes: list[int] = field(default_factory=list)
    """Number of consecutive samples from each process that timed; empty if there was one process."""


@dataclass(frozen=True)
class Retimer:
    """Times winners of searches together and keeps the samples in a folder, so that the same comparison is not repeated."""

    backend: Backend
    hardware: Hardware
    rounds: int
    """Number of interleaved rounds, which is the number of samples of each kernel."""
    folder: Path
    torch_threads: int | None = None
    """Number of threads of torch; by default that of the kernels."""
    processes: int = 1
    """Number of new processes among which the rounds are divided."""

    @property
    def shares(self) -> list[int]:
        """Number of rounds that each process times; there are at most as many processes as rounds."""
        count = min(self.processes, self.rounds)
        return [self.rounds // count + (place < self.rounds % count) for place in range(count)]

    def compare(self, op: Operator, winners: Mapping[str, tuple[Schedule, float]]) -> Comparison:
        """Time the winners on one operator and torch in interleaved rounds, and return the samples.

        `winners` has (schedule, seconds measured by its search) by label. A backend that runs no kernels gives these seconds.
        """
        if not isinstance(self.backend, NativeBackend):
            return Comparison(str(op), {label: [seconds] for label, (_, seconds) in winners.items()}, model=True)
        return self.compare_kernels(op, *self.kernels(op, {label: schedule for label, (schedule, _) in winners.items()}))

    def compare_kernels(self, op: Operator, kernels: Mapping[str, Kernel], dropped: Mapping[str, str]) -> Comparison:
        """Time kernels by label and torch like `compare`; the backend must run kernels.

        `dropped` says, by label, why other kernels are missing; it becomes part of the result.
        """
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
        """Generate the kernels of schedules; return (kernels, errors), both by label."""
        made = {label: make_kernel(op, schedule, self.hardware) for label, schedule in schedules.items()}
        kernels = {label: kernel for label, kernel in made.items() if isinstance(kernel, Kernel)}
        return kernels, {label: why.error for label, why in made.items() if not isinstance(why, Kernel)}

    def _time(self, kernels: dict[str, Kernel]) -> tuple[dict[str, list[float]], dict[str, str]]:
        """Time kernels in all rounds, with torch if it runs on this machine; return (samples, errors), both by kernel digest.

        If they fail together, each is tried alone, and those that fail are left out and have an error.
        """
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
        """Time kernels in several processes, one after another, and return the samples of all rounds.

        Each process places code and data at new addresses, which changes times.
        """
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
        """Time kernels in one round; return {name: error} if this fails, otherwise {}."""
        try:
            self._compare(kernels, 1, torch)
        except FAILURES as error:
            return {name: str(error).strip().splitlines()[-1]}
        return {}


def busy_share() -> float:
    """Return the share of all processors in use while this process sleeps for a moment; 0 if the system does not report it."""
    idle, _, before = ticks()
    time.sleep(0.25)
    later, _, after = ticks()
    return 1.0 - (later - idle) / (after - before) if after > before else 0.0


def ticks() -> tuple[int, int, int]:
    """Return the (idle, stolen, all) ticks of all processors since boot; zeros if the system does not report them."""
    if not (stat := Path("/proc/stat")).exists():
        return 0, 0, 0
    fields = [*map(int, stat.read_text().splitlines()[0].split()[1:9]), 0][:8]
    return fields[3] + fields[4], fields[7], sum(fields)
