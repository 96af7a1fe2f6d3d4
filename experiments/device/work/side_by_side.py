"""Kernels compiled side by side and timed one at a time, each as soon as it is compiled: no kernel waits for a slower one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from experiments.device.work.trials import one_trial
from gensor_gym.codegen.kernel import Kernel
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.native import NativeBackend
from gensor_gym.measure.workers.requests import Built

T = TypeVar("T")
_Compiled = tuple[T, Built | Measurement]


class SideBySide(Generic[T]):
    """A queue of kernels before a device, and one of their measurements behind it, in the order in which they were timed.

    `written` is called with every measurement in the thread that timed it, before anybody can take it: what it writes down is
    there whatever happens to the process afterwards.
    """

    def __init__(
        self, backend: NativeBackend, hw: Hardware, compilers: int, written: Callable[[T, Measurement], None]
    ) -> None:
        """`compilers`: so many kernels are compiled at a time."""
        self._backend, self._hw, self._written = backend, hw, written
        self._compilers = ThreadPoolExecutor(compilers)
        self._compiled: queue.SimpleQueue[_Compiled[T] | None] = queue.SimpleQueue()
        self._timed: queue.SimpleQueue[tuple[T, Measurement] | BaseException] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._time, name="time kernels", daemon=True)
        self._thread.start()

    def put(self, name: T, made: Kernel | Measurement) -> None:
        """Have a kernel measured; what is a measurement already has no kernel, and is passed on."""
        if isinstance(made, Measurement):
            self._compiled.put((name, made))
        else:
            self._compilers.submit(self._compile, name, made)

    def take(self, seconds: float) -> tuple[T, Measurement] | None:
        """The next measurement, waited for so long; None where none came. An error of the timing thread is raised here."""
        try:
            found = self._timed.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def stop(self) -> None:
        """Start nothing more, and let the kernel that is being timed end. What was timed can still be taken."""
        if not self._ending.is_set():
            self._ending.set()
            self._compilers.shutdown(wait=False, cancel_futures=True)
            self._compiled.put(None)
        self._thread.join()

    def _compile(self, name: T, kernel: Kernel) -> None:
        """In a thread of the compilers."""
        try:
            (built,) = self._backend.compile([kernel])
        except BaseException as error:  # a defect of the harness: the thread that takes raises it
            self._timed.put(error)
        else:
            self._compiled.put((name, built))

    def _time(self) -> None:
        """In the timing thread, until the end."""
        try:
            while (item := self._compiled.get()) is not None and not self._ending.is_set():
                name, built = item
                measured = one_trial(self._backend, built, self._hw)
                self._written(name, measured)
                self._timed.put((name, measured))
        except BaseException as error:
            self._timed.put(error)
