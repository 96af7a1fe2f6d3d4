"""Python work of a stage in separate processes: constructions, drawing of schedules, and kernel text.

Every core constructs for another operator at the same time; in a single process this took most of a stage's time.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

from numba.core import event

from experiments.device.work.progress import say
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement

# Compilations of our own code by Numba: none should happen while a device waits.

COMPILING = "numba:compile"
"""Numba's event for the compilation of a function that is in no cache."""


class Compilations(event.Listener):
    """Lists the functions compiled in this process, and prints each if `loud`."""

    def __init__(self, loud: bool = True) -> None:
        self.functions: list[str] = []
        self._loud = loud

    def on_start(self, event: event.Event) -> None:
        """Do nothing; `on_end` records the function."""

    def on_end(self, event: event.Event) -> None:
        """Record the compiled function."""
        function = event.data["dispatcher"].py_func
        self.functions.append(f"{function.__module__}.{function.__name__}")
        if self._loud:
            say(f"compiled on the clock: {self.functions[-1]}")


def watch(loud: bool = True) -> Compilations:
    """Record compilations from now on and return the record."""
    found = Compilations(loud)
    event.register(COMPILING, found)
    return found


Programs = list[tuple[Schedule, Kernel | Measurement]]
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
