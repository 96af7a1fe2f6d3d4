"""Processes that do a stage's work in Python: constructions, drawing of schedules, and generating kernels.

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
"""Numba's event that a function is compiled because no cache has it."""


class Compilations(event.Listener):
    """Numba listener that lists the functions compiled in this process, and prints each if `loud`."""

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
    """Record the functions that Numba compiles from now on; return the record, which grows."""
    found = Compilations(loud)
    event.register(COMPILING, found)
    return found


Programs = list[tuple[Schedule, Kernel | Measurement]]
"""Schedules, each with its kernel or with the measurement that says why there is none."""
_MOST = 12
_NICE = 5


@contextmanager
def open_makers() -> Iterator[Executor]:
    """Start processes for work in Python, which leave some cores to the compilers and to the worker that times.

    Unfinished work is dropped at the end of the `with` block.
    """
    count = max(1, min(_MOST, len(os.sched_getaffinity(0)) - 2))
    makers = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _settle)
    try:
        yield makers
    finally:
        makers.shutdown(wait=False, cancel_futures=True)


def _settle() -> None:
    """Set up a new process: one thread, lower priority, and a printed line for each function that Numba compiles."""
    os.environ["GENSOR_GYM_THREADS"] = "1"
    os.nice(_NICE)
    watch()
