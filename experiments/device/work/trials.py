"""Trials on the device: kernels are compiled in processes while earlier kernels are verified and timed."""

from __future__ import annotations

import queue
import statistics
import time
import traceback
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from experiments.device.work.pipeline import Pipeline
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.device_trials import compilers, one_trial
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import GPU_WARMUP, NativeBackend
from gensor_gym.measure.stats.intervals import median_interval
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.measure.workers.requests import Built

T = TypeVar("T")
Samples = dict[str, list[float]]
"""Seconds of every round by contestant."""

SEARCH = TimingRules(budget=0.1, warmup=GPU_WARMUP)
"""Rules for trials of searches and tables: half of the usual sampling time, so that more trials fit."""
CHECK = TimingRules(budget=2e-3, sample=1e-4, warmup=0.0, least=1, most=2)
"""Rules for trials that verify the answer and not the time."""
FINAL = TimingRules(warmup=GPU_WARMUP)
WINDOW = 56
"""Number of kernels begun and not yet timed: several for each compiler, so that none is idle during a trial."""


class Threads:
    """A `Crew` in real time: a thread for each compiler of a backend, which waits for that compiler's process."""

    def __init__(self, backend: NativeBackend) -> None:
        """Allow `compilers()` compilations at once."""
        self._backend = backend
        self._done: queue.SimpleQueue[Future[tuple[int, Built | Measurement]]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(compilers())

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def begin(self, ticket: int, kernel: Kernel) -> None:
        """Queue a kernel for compilation."""
        self._threads.submit(self._compile, ticket, kernel).add_done_callback(self._done.put)

    def finished(self, wait: float) -> list[tuple[int, Built | Measurement]]:
        """Kernels compiled since the last call, like `Crew.finished`. An error that is not the kernel's fault is raised."""
        found = []
        try:
            found.append(self._done.get(timeout=wait) if wait else self._done.get_nowait())
            while True:
                found.append(self._done.get_nowait())
        except queue.Empty:
            return [future.result() for future in found if not future.cancelled()]

    def abandon(self) -> None:
        """Drop pending compilations; running compilations continue until their compiler ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _compile(self, ticket: int, kernel: Kernel) -> tuple[int, Built | Measurement]:
        """Compile one kernel; return (ticket, compiled kernel or failure)."""
        (built,) = self._backend.compile([kernel])
        return ticket, built


def device_pipeline(
    backend: NativeBackend, hw: Hardware, group: Callable[[T], Hashable] = lambda name: None,
    wanted: Callable[[T], bool] = lambda name: True,
) -> Pipeline[T]:  # fmt: skip
    """A pipeline of trials on a backend's device.

    Measurements come as their kernels are ready, which need not be the order of the work; measurements of one `group` stay
    together.
    """
    return Pipeline(Threads(backend), partial(one_trial, backend, hw=hw), WINDOW, group, wanted)


def or_without_torch(timed: Callable[[bool], Samples]) -> tuple[Samples, dict[str, str]]:
    """(samples, errors) of `timed(torch)`, where `torch` says whether torch is timed too: with it, or without it if that fails.

    Errors are `torch_error`, why torch is missing, and `error`, why there are no samples at all.
    """
    errors: dict[str, str] = {}
    for torch in (True, False):
        try:
            return timed(torch), errors
        except (ValueError, RuntimeError, WorkerLost) as error:
            errors["torch_error" if torch else "error"] = str(error)[-600:]
    return {}, errors


def timed_or_error(does: Callable[..., dict[str, Any]], *of: Any, error: str, seconds: str) -> dict[str, Any]:
    """Result of `does(*of)`, or its trace in an entry named by `error`; then its duration in an entry named by `seconds`."""
    begin = time.perf_counter()
    try:
        said = does(*of)
    except Exception as fault:  # a failure is a result, too
        said = {error: f"{type(fault).__name__}: {fault}"[-600:], "trace": traceback.format_exc()[-2000:]}
    return {**said, seconds: time.perf_counter() - begin}


def facts(measurement: Measurement) -> dict[str, object]:
    """A measurement as entries of a row, with the field names of recorded tables."""
    return {
        "status": measurement.status.value,
        "samples": list(measurement.samples),
        "conditions": measurement.conditions,
        "error": measurement.error[-600:],
        "digest": measurement.digest,
    }


def summary_of(samples: list[float]) -> dict[str, float]:
    """Median with its distribution-free interval of 95 percent, in seconds, and the number of samples."""
    low, high = median_interval(samples)
    return {"median": statistics.median(samples), "low": low, "high": high, "samples": len(samples)}
