"""A pipeline in a thread of its own: who asks for kernels does other work while they are compiled and timed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from experiments.device.work.pipeline import Made, Pipeline, Work
from gensor_gym.measure.measurement import Measurement

T = TypeVar("T")


class SideBySide(Generic[T]):
    """A queue of kernels before a pipeline, and one of their measurements behind it, in the order in which they were timed.

    `written` is called with every measurement in the thread that timed it, before anybody can take it: what it writes down is
    there whatever happens to the process afterwards.
    """

    def __init__(self, pipeline: Pipeline[T], written: Callable[[T, Measurement], None]) -> None:
        """The thread begins."""
        self._pipeline, self._written = pipeline, written
        self._asked: queue.SimpleQueue[Work[T]] = queue.SimpleQueue()
        self._timed: queue.SimpleQueue[tuple[T, Measurement] | BaseException] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._time, name="time kernels", daemon=True)
        self._thread.start()

    def put(self, name: T, made: Made) -> None:
        """Have a kernel measured; what is a measurement already has no kernel, and is passed on."""
        self._asked.put((name, made))

    def take(self, seconds: float) -> tuple[T, Measurement] | None:
        """The next measurement, waited for so long; None where none came. An error of the pipeline is raised here."""
        try:
            found = self._timed.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def stop(self) -> None:
        """Start nothing more, and let the kernel that is being timed end. What was timed can still be taken."""
        self._ending.set()
        self._thread.join()

    def _work(self) -> Iterator[Work[T] | None]:
        """What was asked for, None where that is nothing now."""
        while True:
            try:
                yield self._asked.get_nowait()
            except queue.Empty:
                yield None

    def _time(self) -> None:
        """In the thread, until the end."""
        try:
            for name, measured in self._pipeline.run(self._work(), lambda: not self._ending.is_set()):
                self._written(name, measured)
                self._timed.put((name, measured))
        except BaseException as error:
            self._timed.put(error)
