"""Python work of a stage in separate processes: constructions, drawing of schedules, and kernel text.

Every core constructs for another operator at the same time; in a single process this took most of a stage's time.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

from experiments.device.work.compilations import watch
from experiments.device.work.pipeline import Made
from gensor_gym.graph.schedule import Schedule

Programs = list[tuple[Schedule, Made]]
"""Schedules, each with its kernel or with the measurement that says why the kernel is missing."""
_MOST = 12
_NICE = 5


@contextmanager
def open_makers() -> Iterator[Executor]:
    """Start processes that leave some cores to compilers and to the timing worker; unfinished work is dropped at the end."""
    count = max(1, min(_MOST, len(os.sched_getaffinity(0)) - 2))
    makers = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _settle)
    try:
        yield makers
    finally:
        makers.shutdown(wait=False, cancel_futures=True)


def _settle() -> None:
    """Set up a process: one thread, lower priority, and reports of Numba's compilations."""
    os.environ["GENSOR_GYM_THREADS"] = "1"
    os.nice(_NICE)
    watch()
