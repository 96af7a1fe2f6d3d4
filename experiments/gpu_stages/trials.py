"""Trials on the device: kernels are compiled in processes while the ones before are verified and timed."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.compile_pool import CompilePool
from gensor_gym.measure.cuda_presence import device_name
from gensor_gym.measure.intervals import median_interval
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import GPU_WARMUP, NativeBackend
from gensor_gym.measure.process import WorkerProcess
from gensor_gym.measure.requests import Built
from gensor_gym.measure.timing import TimingRules

T = TypeVar("T")
Work = tuple[T, Kernel | Measurement]
"""Whatever names a trial, with its kernel or the measurement that says why there is none."""

SEARCH = TimingRules(budget=0.1, warmup=GPU_WARMUP)
"""Trials of searches and tables: half of the usual sampling time, so that more of them fit."""
CHECK = TimingRules(budget=2e-3, sample=1e-4, warmup=0.0, least=1, most=2)
"""Trials that are about the answer, not the time."""
FINAL = TimingRules(warmup=GPU_WARMUP)
_SPARE_CORES = 2


def device_backends(*rules: TimingRules) -> list[NativeBackend]:
    """`cuda` backends that share one worker and its compilers, which leave cores to the worker that times."""
    pool = CompilePool(max(1, len(os.sched_getaffinity(0)) - _SPARE_CORES), seconds=30.0)
    worker = WorkerProcess("cuda", stage_seconds={"verify": 30.0, "check": 30.0})
    return [NativeBackend("cuda", pool, device_name, one, worker=worker) for one in rules]


def run_trials(
    backend: NativeBackend, hw: Hardware, work: Iterable[Work[T]], more: Callable[[], bool], batch: int = 16
) -> Iterator[tuple[T, Measurement]]:
    """Measurements in order, as long as `more` says so. The next batch is made and compiled while one is timed."""
    items = iter(work)

    def prepare() -> list[tuple[T, Built | Measurement]]:
        chunk = list(islice(items, batch))
        built = iter(backend.compile([made for _, made in chunk if isinstance(made, Kernel)]))
        return [(name, next(built) if isinstance(made, Kernel) else made) for name, made in chunk]

    with ThreadPoolExecutor(1) as ahead:
        coming: Future[list[tuple[T, Built | Measurement]]] = ahead.submit(prepare)
        while ready := coming.result():
            coming = ahead.submit(prepare) if more() else ahead.submit(list)
            for name, built in ready:
                if not more():
                    return
                yield name, one_trial(backend, built, hw)


def one_trial(backend: NativeBackend, built: Built | Measurement, hw: Hardware) -> Measurement:
    """One trial; an error of the worker's own, which a search would raise, costs this trial and not the stage."""
    try:
        return backend.trial(built, hw)
    except RuntimeError as error:
        digest = built.digest if isinstance(built, Measurement) else built.kernel.digest
        return Measurement(Status.CRASHED, error=str(error), digest=digest)


def facts(measurement: Measurement) -> dict[str, object]:
    """A measurement as part of a row, in the words of `measure.recorded`."""
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
