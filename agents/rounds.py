"""Run several searches side by side, each in its own thread, so that no core waits for a compiler or a walk.

Kernels are compiled on all cores while other searches walk. They are timed one after another when every search waits for a
measurement and every compiler has ended, so that nothing disturbs their times. Kernels that are only verified do not wait.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from agents.core.workers import workers
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.session import BudgetSpent
from gensor_gym.measure.stats.timing import TimingRules
from gensor_gym.measure.workers.requests import Built

BRIEF = TimingRules(budget=0.03, warmup=5e-3)
"""Rules of timing for trials whose best programs a playoff times again."""


class Stopped(Exception):
    """Raised in a search that must end now, because another search failed or the run was interrupted."""


@dataclass
class _Request:
    """A request of one search to measure kernels: their running compilations, and later their measurements."""

    compiled: list[Future[Built | Measurement]]
    answers: list[Measurement] = field(default_factory=list)
    answered: threading.Event = field(default_factory=threading.Event)

    @property
    def ready(self) -> bool:
        return all(one.done() for one in self.compiled)


class Rounds:
    """A backend shared by searches in parallel threads (`run`): it compiles kernels on all cores and times them in order.

    `on_answer` is called after each measurement.
    """

    stored = True

    def __init__(self, backend: NativeBackend, hw: Hardware, timed: bool, on_answer: Callable[[str], None]) -> None:
        """Wrap `backend` for searches on `hw`.

        With `timed=False` kernels are not timed but only verified, each with one set of random inputs.
        """
        self.name, self.device = backend.name, backend.device
        self._settled: set[Any] = set()
        self._backend, self._hardware, self._timed, self._on_answer = backend, hw, timed, on_answer
        self._turn = threading.Semaphore(workers())
        self._changed = threading.Condition()  # its lock is reentrant: a compilation may end at once
        self._waiting: list[_Request] = []
        self._running = 0
        self._error: BaseException | None = None
        self._stopped = False

    def run(self, searches: Sequence[Callable[[], None]]) -> None:
        """Run the searches in parallel threads to their end; raise the first error of a search."""
        self._running = len(searches)
        self._compilers = ThreadPoolExecutor(os.cpu_count() or 1)
        for search in searches:
            threading.Thread(target=self._searched, args=(search,), daemon=True).start()
        try:
            while batch := self._next():
                for request in batch:
                    request.answers = [self._answer(one.result()) for one in request.compiled]
                with self._changed:
                    self._running += len(batch)
                for request in batch:
                    request.answered.set()
        finally:
            with self._changed:
                self._stopped = True
                for request in self._waiting:
                    request.answered.set()
            self._compilers.shutdown(wait=False, cancel_futures=True)

    def digest(self, op: Any, schedule: Any, hw: Hardware) -> str:
        """Return the digest of the kernel that a schedule generates.

        BudgetSpent if kernels are not timed and an earlier kernel of the operator is correct, because its search is then over.
        """
        if op in self._settled:
            raise BudgetSpent(f"{op} has a program that is right")
        return self._backend.digest(op, schedule, hw)

    def stream(self, op: Any, schedules: Sequence[Any], hw: Hardware) -> Iterator[Measurement]:
        """Compile and measure kernels, and yield one measurement for each schedule, in order. A search calls it in its thread."""
        made = [self._backend.generated(op, schedule, hw) for schedule in schedules]
        with self._changed:
            if self._stopped:
                raise Stopped
            request = _Request([self._begun(one) for one in made])
            self._running -= 1
            self._waiting.append(request)
            self._changed.notify()
        self._turn.release()
        request.answered.wait()
        self._turn.acquire()
        if self._stopped:
            raise Stopped
        yield from request.answers

    def measure(self, op: Any, schedules: Sequence[Any], hw: Hardware) -> list[Measurement]:
        """Return one measurement for each schedule, in order; see `stream`."""
        return list(self.stream(op, schedules, hw))

    def close(self) -> None:
        """Do nothing: the processes belong to the wrapped backend."""

    def _searched(self, search: Callable[[], None]) -> None:
        error: BaseException | None = None
        with self._turn:
            try:
                if not self._stopped:
                    search()
            except Stopped:
                return
            except BaseException as raised:  # `run` raises it in the caller's thread
                error = raised
        with self._changed:
            self._running -= 1
            self._error = self._error or error
            self._changed.notify()

    def _next(self) -> list[_Request]:
        """Wait for the requests that can be answered next, and return them; no requests if all searches have ended.

        The error of a search is raised here.
        """
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                ready = [request for request in self._waiting if request.ready]
                if self._timed and (self._running or len(ready) < len(self._waiting)):
                    ready = []
                if ready or not (self._running or self._waiting):
                    self._waiting = [request for request in self._waiting if request not in ready]
                    return ready
                self._changed.wait()

    def _begun(self, kernel: Kernel | Measurement) -> Future[Built | Measurement]:
        """Begin the compilation of a kernel and return its future.

        For a kernel that could not be generated, it has already ended.
        """
        if isinstance(kernel, Measurement):
            ended: Future[Built | Measurement] = Future()
            ended.set_result(kernel)
            return ended
        begun = self._compilers.submit(lambda: self._backend.compile([kernel])[0])
        begun.add_done_callback(lambda _: self._told())
        return begun

    def _told(self) -> None:
        with self._changed:
            self._changed.notify()

    def _answer(self, built: Built | Measurement) -> Measurement:
        if isinstance(built, Measurement):
            return built
        begin, compiling = time.perf_counter(), built.compile_seconds
        measured = self._backend.trial(built, self._hardware, timed=self._timed, rules=BRIEF)
        self._on_answer(str(built.kernel.operator))
        if not self._timed and measured.status is Status.OK:
            self._settled.add(built.kernel.operator)
        measured.conditions["trial_seconds"] = time.perf_counter() - begin + compiling
        return measured
