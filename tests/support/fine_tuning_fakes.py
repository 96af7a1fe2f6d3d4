"""A device that answers at once, for fine-tuning: times by the kernel's digest, some kernels fail, one compiles for long."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.common.journal import read_rows
from experiments.device.context import Context
from experiments.device.stages import contests, fine_tuning
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.pool import LocalPool
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Built

GEMMS = ["gemm(m=256, n=128, k=128)", "gemm(m=128, n=128, k=128)"]
SETTINGS: Mapping[str, Any] = {
    "checkpoint": "set in every test", "other_model": True, "operators": GEMMS, "leave_out": [], "microseconds": [0.0, 100.0],
    "megabytes": 100.0, "halves": False, "measurements": 40, "window": 6, "save_every": 8, "sampling": 0.01,
    "columns": {
        "tasks": 2, "programs": 32, "best": 0.15, "learning_rate": 0.002, "entropy": 0.006, "kernels": 4, "warm_kernels": 1,
        "temperature": 2.0, "remembered": 4, "updates": 1,
    },
}  # fmt: skip


class FakeGpu(NativeBackend):
    """See the module. All of a test's faults are class attributes."""

    fails = 3
    """Every so manieth kernel gives a wrong answer; 0 for none, 1 for all."""
    slow = False
    """The first kernel that is compiled is there only when 20 others were timed."""
    dies_at = 0
    """The process is killed in the middle of so manieth trial; 0 for never."""
    trials: list[str] = []
    first = ""
    enough = threading.Event()

    def __init__(self, rules: TimingRules) -> None:
        super().__init__("cuda", _instant, lambda hw: "NVIDIA H100", rules, pool=_Pool(self))

    def compile(self, kernels: Sequence[Kernel]) -> list[Built | Measurement]:
        if self.slow and not FakeGpu.first:
            FakeGpu.first = kernels[0].digest
            FakeGpu.enough.wait(60.0)
        return [Built(kernel, "") for kernel in kernels]

    def trial(self, built: Built | Measurement, hw: Hardware) -> Measurement:
        if isinstance(built, Measurement):
            return built
        digest = built.kernel.digest
        FakeGpu.trials.append(digest)
        if len(FakeGpu.trials) == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(FakeGpu.trials) >= 20:
            FakeGpu.enough.set()
        if self.fails and int(digest[:4], 16) % self.fails == 0:
            if int(digest[4:6], 16) % 2:
                raise RuntimeError("worker failed in stage load: of its own")
            return Measurement(Status.WRONG_ANSWER, error="first at (0, 0)", digest=digest)
        return Measurement(Status.OK, (seconds_of(digest),) * 5, {}, "", digest)

    def compare(
        self, kernels: dict[str, Kernel], hw: Hardware, rounds: int = 20, torch: bool = False, seed: int = 0,
        torch_compile: bool = False,
    ) -> dict[str, list[float]]:  # fmt: skip
        found = {name: [seconds_of(kernel.digest)] * rounds for name, kernel in kernels.items()}
        return found | ({"torch": [1e-6] * rounds} if torch else {})


def seconds_of(digest: str) -> float:
    return (1 + int(digest[:6], 16) / 2**24) * 1e-6


def _instant(kernel: Kernel) -> Built:
    return Built(kernel, "")


class _Pool(LocalPool):
    """Asks the device above instead of a worker."""

    def __init__(self, device: FakeGpu) -> None:
        super().__init__(_instant, [WorkerProcess("cuda")])
        self.device = device

    def time(self, worker: WorkerProcess, trial: Any, built: Built | Measurement) -> Measurement:
        return self.device.trial(built, None)  # type: ignore[arg-type]


def devices(*rules: TimingRules) -> list[FakeGpu]:
    return [FakeGpu(one) for one in rules]


def killed_once(context: Context) -> dict[str, object]:
    """The stage in a process that is killed at its 13th trial, where no kernel is on file."""
    return _killed(context, 1)


def killed_twice(context: Context) -> dict[str, object]:
    """The stage in a process that is killed at its 13th trial, as long as fewer than 20 kernels are on file."""
    return _killed(context, 20)


def _killed(context: Context, few: int) -> dict[str, object]:
    fine_tuning.device_backends = contests.device_backends = devices  # type: ignore[assignment]
    fine_tuning.device_name = lambda hw: "NVIDIA H100"  # type: ignore[assignment]
    settings = {**SETTINGS, "checkpoint": str(context.path("p0"))}
    fine_tuning.read_settings = lambda: settings  # type: ignore[assignment]
    measured = len(read_rows(context.path("fine_tuning/measured.jsonl")))
    FakeGpu.dies_at = 13 if measured < few else 0
    return fine_tuning.run(context)
