"""Trials on a GPU: processes that compile, one worker that times; an error of the worker becomes the status of a trial."""

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
"""Number of requests after which the device's worker is replaced. Each new worker opens the device and computes references again.
"""


def compilers() -> int:
    """Return the number of compiler processes: all cores except two, which the timing worker and the calling process use."""
    return max(1, len(os.sched_getaffinity(0)) - 2)


def device_backends(*rules: TimingRules) -> list[NativeBackend]:
    """Make a `cuda` backend for each of the timing `rules`. All share one timing worker and the compiler processes."""
    pool = CompilePool(compilers(), seconds=DEVICE_COMPILE_SECONDS)
    worker = WorkerProcess("cuda", restart_after=_RESTART_AFTER, stage_seconds={"verify": 30.0, "check": 30.0})
    return [NativeBackend("cuda", pool, device_name, one, worker=worker) for one in rules]


def one_trial(backend: NativeBackend, built: Built | Measurement, hw: Hardware) -> Measurement:
    """Verify and time one compiled kernel. Return its measurement, with status CRASHED if the worker raised an error.

    A measurement in place of a kernel, from a failed compilation, is returned unchanged.
    """
    return built if isinstance(built, Measurement) else or_crashed(lambda: backend.trial(built, hw), built.kernel.digest)


def or_crashed(trial: Callable[[], Measurement], digest: str) -> Measurement:
    """Call `trial` for the kernel with this digest. If the worker raises an error, return a measurement with status CRASHED."""
    try:
        return trial()
    except RuntimeError as error:
        return Measurement(Status.CRASHED, error=str(error), digest=digest)
