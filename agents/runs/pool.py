"""Run searches in parallel, each in a process of its own with one thread. Results are yielded in the order in which they end."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import wait
from threading import Thread
from typing import TypeVar

from agents.cli.stopping import asked
from agents.runs.jobs import Jobs, Outcome, attempt, warm_up
from agents.runs.settings import Job
from gensor_gym.measure.backend import Backend
from gensor_gym.measure.session import TraceRow
from gensor_gym.plugins import load_named

ONE_THREAD = ("GENSOR_GYM_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables with the number of threads of the libraries that strategies use."""

Item = TypeVar("Item")
Found = TypeVar("Found")

_backend: Backend
_warm: set[tuple[str, str]] = set()


def made(jobs: Jobs, missing: Sequence[Job], workers: int) -> Iterator[tuple[Job, Outcome]]:
    """Run the missing jobs in parallel, record each outcome, and yield (job, outcome) as jobs end.

    An exception ends only its own job. Closing the iterator drops the remaining jobs.
    """
    for job, trials, outcome, trace in side_by_side(_search, missing, workers, partial(_take, jobs.backend)):
        yield job, jobs.keep(job, trials, outcome, trace)


def side_by_side(
    work: Callable[[Item], Found], items: Sequence[Item], workers: int, begin: Callable[[], None] | None = None
) -> Iterator[Found]:
    """Yield results of `work` on every item as they end, from `workers` processes that called `begin` at their start.

    Exceptions of `work` are raised here. Closing the iterator drops pending items and, if a signal stops the command,
    running items.
    """
    if not items:
        return
    with _one_thread():
        context = multiprocessing.get_context("spawn")  # a fork would share the locks of numeric libraries
        pool = ProcessPoolExecutor(min(workers, len(items)), context, _begin, (begin,))
        try:
            waiting: list[Future[Found]] = [pool.submit(work, item) for item in items]
            for future in as_completed(waiting):
                yield future.result()
        finally:
            if asked():  # running items take minutes, and the same command repeats them
                for process in list((pool._processes or {}).values()):
                    process.kill()
            pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[[], None] | None) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    load_named()
    if begin is not None:
        begin()


def _take(backend: Backend) -> None:
    global _backend
    _backend = backend


def _end_with_parent() -> None:
    """Wait in a worker for the end of its parent process and end the worker then, which would wait for jobs forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _search(job: Job) -> tuple[Job, list[TraceRow], Outcome, str]:
    """Run a job in a worker process, after loading the strategy's code.

    Return (job, its trials, its outcome, traceback of an unexpected error).
    """
    if (job.of, str(job.hyperparameters)) not in _warm:
        _warm.add((job.of, str(job.hyperparameters)))
        warm_up(job)
    trials: list[TraceRow] = []
    outcome, trace = attempt(job, _backend, None, trials.append)
    return job, trials, outcome, trace


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set the libraries' numbers of threads to 1 in the environment that the worker processes inherit."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
