"""Workers that verify and time precompiled kernels on the device; only one at a time uses the GPU.

Meanwhile the other workers draw inputs and references of their next operator (`measure.workers.trial.Device.exclusive`).
"""

from __future__ import annotations

import queue
import statistics
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from gensor_gym.codegen.deadlines import DEVICE_COMPILE_SECONDS
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.targets import target_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.device_trials import compilers, or_crashed
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import GPU_WARMUP
from gensor_gym.measure.stats.floor import MARGIN, warm_floor
from gensor_gym.measure.stats.intervals import median_interval
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.compile_pool import CompilePool
from gensor_gym.measure.workers.pool import compiled, timed
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from gensor_gym.measure.workers.requests import Built, CompareRequest, Trial

# Rules of trials on the device, their results as rows, and errors that do not end a stage.

Samples = dict[str, list[float]]
"""Name of a timed contestant -> seconds of every round."""

SEARCH = TimingRules(budget=0.1, warmup=GPU_WARMUP)
"""Timing rules for trials of searches and tables: half of the usual sampling time, so that more trials fit."""
CHECK = TimingRules(budget=2e-3, sample=1e-4, warmup=0.0, least=1, most=2)
"""Timing rules for trials that verify the answer; their time is meaningless."""
FINAL = TimingRules(warmup=GPU_WARMUP)


def or_without_torch(timed: Callable[[bool], Samples]) -> tuple[Samples, dict[str, str]]:
    """Call `timed(True)`, which times torch too, or, if that fails, `timed(False)`; return (samples, errors).

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
    """Return the result of `does(*of)` with the seconds that it took, under the key `seconds`.

    If it raises, the result is the exception's text, under the key `error`, and its trace.
    """
    begin = time.perf_counter()
    try:
        said = does(*of)
    except Exception as fault:  # a failure is a result, too
        said = {error: f"{type(fault).__name__}: {fault}"[-600:], "trace": traceback.format_exc()[-2000:]}
    return {**said, seconds: time.perf_counter() - begin}


def facts(measurement: Measurement) -> dict[str, object]:
    """Return a measurement as fields of a row, which are named as in recorded tables."""
    return {
        "status": measurement.status.value,
        "samples": list(measurement.samples),
        "conditions": measurement.conditions,
        "error": measurement.error[-600:],
        "digest": measurement.digest,
    }


def summary_of(samples: list[float]) -> dict[str, float]:
    """Return the median of samples in seconds, its 95 percent interval, which assumes no distribution, and their number."""
    low, high = median_interval(samples)
    return {"median": statistics.median(samples), "low": low, "high": high, "samples": len(samples)}


T = TypeVar("T")
Made = Built | Measurement
"""A compiled kernel, or the measurement that says why there is none."""

QUICK = TimingRules(budget=0.03, sample=1e-3, warmup=5e-3, most=60)
"""Timing rules for trials of many kernels in a row; the GPU never idles long enough to lower its clock."""
TOGETHER = TimingRules(sample=1e-3, warmup=10e-3)
"""Timing rules for rounds in which winners are timed together, with a sample of each in every round."""
_RESTART_AFTER = 3000
_SECONDS = {"wait": 120.0, "verify": 30.0, "check": 30.0, "reference": 60.0}


class Compilers:
    """Pool that compiles kernels in parallel, on all cores except a few."""

    def __init__(self) -> None:
        self._pool = CompilePool(compilers(), seconds=DEVICE_COMPILE_SECONDS)
        self._threads = ThreadPoolExecutor(compilers())

    def submit(self, made: Kernel | Measurement) -> Future[Made]:
        """Compile a kernel in the background. The result is the compiled kernel, or a measurement that says why there is none.

        A measurement, given in place of a kernel that could not be made, is returned as it is.
        """
        return self._threads.submit(lambda: compiled(self._pool, made) if isinstance(made, Kernel) else made)

    def close(self) -> None:
        """Drop pending work."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.close()


class Bench:
    """Worker process that verifies and times compiled kernels on the GPU."""

    def __init__(self, hw: Hardware) -> None:
        self._hardware, self._threads = hw, target_of(hw).threads(hw)
        self._worker = WorkerProcess("cuda", _RESTART_AFTER, _SECONDS)

    def trial(self, built: Made, rules: TimingRules = QUICK) -> Measurement:
        """Verify and time one kernel by the timing `rules`; a failure, also of the worker, becomes the measurement's status."""
        if isinstance(built, Measurement):
            return built
        kernel = built.kernel
        floor = MARGIN * warm_floor(kernel.operator, self._hardware)
        trial = Trial(kernel, self._threads, floor, rules=rules)
        return or_crashed(lambda: timed(self._worker, trial, built), kernel.digest)

    def together(self, built: Mapping[str, Built], rounds: int) -> tuple[Samples, dict[str, str]]:
        """Time kernels of one operator and torch in interleaved rounds; return (samples by name, errors)."""
        request = CompareRequest(tuple(built.items()), self._threads, rounds, torch_threads=self._threads, rules=TOGETHER)
        ask = self._worker.ask
        return or_without_torch(lambda torch: ask(request if torch else replace(request, torch_threads=None)))

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


def side_by_side(
    items: Iterable[T], does: Callable[[Bench, T], None], hw: Hardware, workers: int, more: Callable[[], bool]
) -> None:
    """Let `workers` threads process the items, each taking the next item, as long as `more` returns True.

    Each thread has its own worker process. The first error is raised at the end.
    """
    left: queue.SimpleQueue[T] = queue.SimpleQueue()
    for item in items:
        left.put(item)
    failed: list[BaseException] = []

    def work() -> None:
        bench = Bench(hw)
        try:
            while more() and not failed:
                does(bench, left.get_nowait())
        except queue.Empty:
            pass
        except BaseException as error:  # raised after the threads are joined
            failed.append(error)
        finally:
            bench.close()

    threads = [threading.Thread(target=work, name=f"bench {number}") for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
