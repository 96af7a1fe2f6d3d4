"""Pools measure trials and return their measurements in order. `LocalPool` uses this machine.

Kernels are compiled on all cores; each worker times one at a time. `ahead` limits the number of kernels that are compiled or
measured before the caller takes them, and so limits the memory for a million trials.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Protocol, runtime_checkable

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.workers.affinity import leave_first_cpu
from gensor_gym.measure.workers.builders import CompileFailed
from gensor_gym.measure.workers.process import WorkerLost, WorkerProcess
from gensor_gym.measure.workers.requests import Built, Comparison, Trial

Compile = Callable[[Kernel], Built]
"""Function that compiles a kernel to a file or raises CompileFailed."""
AHEAD = 64


class Pool(Protocol):
    """Workers that measure kernels."""

    def stream(self, trials: Iterable[Trial], overlap: bool = False) -> Iterator[Measurement]:
        """Yield one measurement per trial, in order, each when it is ready. A kernel's failure is its status.

        With `overlap` the next kernels may be compiled while one is timed, on the other cores.
        """

    def compare(self, comparison: Comparison) -> dict[str, list[float]]:
        """Time kernels together in one worker. Return seconds per call by name. Errors are those of `NativeBackend.compare`."""

    def close(self) -> None:
        """End the pool's processes. The next use restarts them."""


@runtime_checkable
class Closing(Protocol):
    """A compiler with processes that `close` ends."""

    def close(self) -> None:
        """End the compiler's processes."""


def compiled(compile_kernel: Compile, kernel: Kernel) -> Built | Measurement:
    """Compile a kernel. Return its file, or a measurement with the status and reason of the failure."""
    try:
        return compile_kernel(kernel)
    except CompileFailed as error:
        return Measurement(error.status, error=str(error), digest=kernel.digest)


def timed(worker: WorkerProcess, trial: Trial, built: Built | Measurement) -> Measurement:
    """Verify and time one compiled kernel. If the worker dies, the measurement's status says how."""
    if isinstance(built, Measurement):
        return built
    try:
        return worker.ask(trial.request(built))
    except WorkerLost as loss:
        return Measurement(loss.status, error=str(loss), digest=trial.kernel.digest)


def compared(worker: WorkerProcess, comparison: Comparison, built: Sequence[Built | Measurement]) -> dict[str, list[float]]:
    """Time compiled kernels together in one worker. Return seconds per call by name; ValueError if one did not compile."""
    pairs: list[tuple[str, Built]] = []
    for (name, _), item in zip(comparison.kernels, built, strict=True):
        if isinstance(item, Measurement):
            raise ValueError(f"{name} cannot be compared: {item.status.value}: {item.error}")
        pairs.append((name, item))
    return worker.ask(comparison.request(tuple(pairs)))


class LocalPool:
    """Pool of this machine: compilers on all cores, and worker processes with one device each."""

    def __init__(
        self, compile_kernel: Compile, workers: Sequence[WorkerProcess], overlap: bool = False, ahead: int = AHEAD
    ) -> None:
        """Make a pool in which `compile_kernel` compiles kernels and `workers` time them.

        At most `ahead` kernels are compiled before the caller takes results. `overlap` compiles the next kernels while some are
        timed, for devices that compilers do not disturb. ValueError without a worker, or for `ahead` below 1.
        """
        if not workers or ahead < 1:
            raise ValueError(f"a pool needs a worker and ahead >= 1, got {len(workers)} workers and ahead={ahead}")
        self.workers = tuple(workers)
        self.ahead = ahead
        self._compile = compile_kernel
        self._overlap = overlap

    def stream(self, trials: Iterable[Trial], overlap: bool = False) -> Iterator[Measurement]:
        """Yield one measurement per trial, in order; see `Pool`.

        Up to `ahead` kernels are compiled, then timed, before the next batch. With `overlap`, here or at construction, each
        kernel is timed as soon as it is compiled.
        """
        left = iter(trials)
        aside = leave_first_cpu if overlap and not self._overlap else None
        compilers = ThreadPoolExecutor(os.cpu_count() or 1, initializer=aside)
        try:
            if (self._overlap or overlap) and len(self.workers) == 1:
                yield from self._as_compiled(compilers, left)
            while batch := list(islice(left, self.ahead)):
                futures = [compilers.submit(compiled, self._compile, trial.kernel) for trial in batch]
                yield from self._timed([(trial, future.result()) for trial, future in zip(batch, futures, strict=True)])
        finally:
            compilers.shutdown(cancel_futures=True)

    def compile(self, kernels: Sequence[Kernel]) -> list[Built | Measurement]:
        """Compile kernels in parallel. A kernel that fails gives a Measurement with the reason."""
        if not kernels:
            return []
        with ThreadPoolExecutor(min(len(kernels), os.cpu_count() or 1)) as compilers:
            return list(compilers.map(lambda kernel: compiled(self._compile, kernel), kernels))

    def time(self, worker: WorkerProcess, trial: Trial, built: Built | Measurement) -> Measurement:
        """Time one trial; see `timed`."""
        return timed(worker, trial, built)

    def compare(self, comparison: Comparison) -> dict[str, list[float]]:
        """Compile kernels and time them together in the first worker; see `Pool`."""
        return compared(self.workers[0], comparison, self.compile([kernel for _, kernel in comparison.kernels]))

    def close(self) -> None:
        """End the workers, and the compiler's processes if it has any."""
        for worker in self.workers:
            worker.close()
        if isinstance(self._compile, Closing):
            self._compile.close()

    def _as_compiled(self, compilers: ThreadPoolExecutor, left: Iterator[Trial]) -> Iterator[Measurement]:
        """Time each kernel as soon as it is compiled, so that a slow compilation delays no other.

        Yield results in the order of trials. `left` has the trials that have not begun.
        """
        waiting: dict[Future[Built | Measurement], tuple[int, Trial]] = {}
        found: dict[int, Measurement] = {}
        begun = given = 0
        while True:
            for trial in islice(left, self.ahead - (begun - given)):
                waiting[compilers.submit(compiled, self._compile, trial.kernel)] = begun, trial
                begun += 1
            if not waiting:
                return
            ended = wait(waiting, return_when=FIRST_COMPLETED).done
            first = min(ended, key=lambda future: waiting[future][0])
            place, trial = waiting.pop(first)
            found[place] = self.time(self.workers[0], trial, first.result())
            while given in found:
                yield found.pop(given)
                given += 1

    def _timed(self, built: Sequence[tuple[Trial, Built | Measurement]]) -> Iterator[Measurement]:
        """Time compiled kernels in order on the workers. Yield their measurements.

        A single worker is used in the calling thread, so that Ctrl-C interrupts it there.
        """
        if len(self.workers) == 1:
            for trial, item in built:
                yield self.time(self.workers[0], trial, item)
            return
        idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for worker in self.workers:
            idle.put(worker)

        def on_idle(pair: tuple[Trial, Built | Measurement]) -> Measurement:
            worker = idle.get()
            try:
                return self.time(worker, *pair)
            finally:
                idle.put(worker)

        with ThreadPoolExecutor(len(self.workers)) as threads:
            futures = [threads.submit(on_idle, pair) for pair in built]
            try:
                for future in futures:
                    yield future.result()
            except KeyboardInterrupt:
                threads.shutdown(wait=False, cancel_futures=True)
                for worker in self.workers:
                    worker.kill()  # a kernel may hang: do not wait for its deadline
                raise
            finally:
                threads.shutdown(cancel_futures=True)
