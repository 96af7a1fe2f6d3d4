"""Trials on a GPU: processes that compile, one worker that times, and errors of the worker as the status of a trial."""

from __future__ import annotations

import os
from collections.abc import Callable

from gensor_gym.codegen.deadlines import DEVICE_COMPILE_SECONDS
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.devices.presence import device_name
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.compile_pool import CompilePool
from gensor_gym.measure.workers.process import WorkerProcess
from gensor_gym.measure.workers.requests import Built

_RESTART_AFTER = 3000
"""Requests after which the device's worker is replaced. Each new worker opens the device and computes its references again."""


def compilers() -> int:
    """Number of compiler processes: all cores except two, which the timing worker and the calling process use."""
    return max(1, len(os.sched_getaffinity(0)) - 2)


def device_backends(*rules: TimingRules) -> list[NativeBackend]:
    """A `cuda` backend for each of `rules`. They share one timing worker and the compiler processes."""
    pool = CompilePool(compilers(), seconds=DEVICE_COMPILE_SECONDS)
    worker = WorkerProcess("cuda", restart_after=_RESTART_AFTER, stage_seconds={"verify": 30.0, "check": 30.0})
    return [NativeBackend("cuda", pool, device_name, one, worker=worker) for one in rules]


def one_trial(backend: NativeBackend, built: Built | Measurement, hw: Hardware) -> Measurement:
    """Make one trial. An error of the worker becomes the status CRASHED."""
    return built if isinstance(built, Measurement) else or_crashed(lambda: backend.trial(built, hw), built.kernel.digest)


def or_crashed(trial: Callable[[], Measurement], digest: str) -> Measurement:
    """Run a trial of the kernel `digest`. An error of the worker becomes the status CRASHED."""
    try:
        return trial()
    except RuntimeError as error:
        return Measurement(Status.CRASHED, error=str(error), digest=digest)
