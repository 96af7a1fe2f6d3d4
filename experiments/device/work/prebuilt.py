"""Precompiled kernels, verified and timed on the device by several workers, of which one at a time has the GPU.

Meanwhile the other workers draw inputs and references of their next operator (`measure.workers.trial.Device.exclusive`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from experiments.device.archive.packed import Archive, kernel_of
from experiments.device.work.trials import compilers
from gensor_gym.codegen.deadlines import DEVICE_COMPILE_SECONDS
from gensor_gym.codegen.targets import target_of
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.stats.floor import MARGIN, warm_floor
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.compile_pool import CompilePool
from gensor_gym.measure.workers.pool import compiled, timed
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from gensor_gym.measure.workers.requests import Built, CompareRequest, Trial

T = TypeVar("T")
Made = Built | Measurement
"""A compiled kernel, or the measurement that says why it is missing."""

QUICK = TimingRules(budget=0.03, sample=1e-3, warmup=5e-3, most=60)
"""Rules for trials of many kernels, one after another; the GPU never idles long enough to lower its clock."""
TOGETHER = TimingRules(sample=1e-3, warmup=10e-3)
"""Rules for rounds of winners, with a sample of each winner in every round."""
_RESTART_AFTER = 3000
_SECONDS = {"wait": 120.0, "verify": 30.0, "check": 30.0, "reference": 60.0}


class Compiling:
    """Compiled kernels of an archive; kernels packed as text are compiled ahead, in the order of `digests`."""

    def __init__(self, archive: Archive, digests: Iterable[str]) -> None:
        """Start compiling at once, on all cores except a few."""
        self._archive = archive
        texts = [digest for digest in dict.fromkeys(digests) if digest in archive.texts]
        self._pool = CompilePool(compilers(), seconds=DEVICE_COMPILE_SECONDS)
        self._threads = ThreadPoolExecutor(compilers())
        self._made = {digest: self._threads.submit(self._compiled, digest) for digest in texts}

    def made(self, digest: str) -> Made:
        """The kernel, after its compilation. KeyError for a kernel that the archive lacks."""
        return self._made[digest].result() if digest in self._made else self._archive.built(digest)

    def _compiled(self, digest: str) -> Made:
        """Compile a kernel that was packed as text."""
        return compiled(self._pool, kernel_of(self._archive.texts[digest]))

    def close(self) -> None:
        """Drop pending work."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.close()


class Bench:
    """One worker of the GPU."""

    def __init__(self, hw: Hardware) -> None:
        """Prepare a worker, which starts with the first request."""
        self._hardware, self._threads = hw, target_of(hw).threads(hw)
        self._worker = WorkerProcess("cuda", _RESTART_AFTER, _SECONDS)

    def trial(self, built: Made, rules: TimingRules = QUICK, seed: int = 0) -> Measurement:
        """Verify and time one kernel; a failure is its status, including an error of the worker."""
        if isinstance(built, Measurement):
            return built
        kernel = built.kernel
        floor = MARGIN * warm_floor(kernel.operator, self._hardware)
        try:
            return timed(self._worker, Trial(kernel, self._threads, floor, seed, rules), built)
        except RuntimeError as error:
            return Measurement(Status.CRASHED, error=str(error), digest=kernel.digest)

    def together(self, built: Mapping[str, Built], rounds: int) -> tuple[dict[str, list[float]], dict[str, str]]:
        """Time one operator's kernels in interleaved rounds: (samples by name and of torch in its layouts, errors).

        If torch fails, the rounds are repeated without it. Errors are `torch_error`, why torch is missing, and `error`, why there
        are no samples at all.
        """
        errors: dict[str, str] = {}
        for torch in (self._threads, None):
            request = CompareRequest(tuple(built.items()), self._threads, rounds, torch_threads=torch, rules=TOGETHER)
            try:
                return self._worker.ask(request), errors
            except (ValueError, RuntimeError, WorkerLost) as error:
                errors["torch_error" if torch else "error"] = str(error)[-600:]
        return {}, errors

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


def side_by_side(
    items: Iterable[T], does: Callable[[Bench, T], None], hw: Hardware, workers: int, more: Callable[[], bool]
) -> None:
    """Let workers process items, each taking the next item, while `more` returns True. The first error is raised."""
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
