"""Many kernels are compiled while one at a time is timed: any ready kernel is timed next, and nothing waits for a slow one.

The clock and the compilers are a `Crew`, so that the same pipeline runs on a device and, in tests, in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.workers.requests import Built

T = TypeVar("T")
Made = Kernel | Measurement
"""A kernel, or the measurement that says why it is missing."""
Work = tuple[T, Made]
"""(name of a trial, its kernel)."""
POLL = 0.1
"""Seconds of one wait for a compilation; after each wait the remaining time is checked."""


class Crew(Protocol):
    """Parallel compilers, and a clock."""

    def now(self) -> float:
        """Seconds of a monotonic clock."""

    def begin(self, ticket: int, kernel: Kernel) -> None:
        """Queue a kernel for compilation."""

    def finished(self, wait: float) -> list[tuple[int, Built | Measurement]]:
        """Kernels compiled since the last call. If there are none, wait at most `wait` seconds for the first."""

    def abandon(self) -> None:
        """Drop all pending work and return at once."""


@dataclass
class Pipeline(Generic[T]):
    """Trials in the order in which their kernels are ready.

    `time` makes one trial on the device. At most `window` kernels are begun and not yet timed. Trials of one `group` (the
    operator) stay together if they are ready, because a change of operator costs the device new inputs. Items that `wanted`
    refuses at their turn are dropped.
    """

    crew: Crew
    time: Callable[[Built | Measurement], Measurement]
    window: int
    group: Callable[[T], Hashable] = lambda name: None
    wanted: Callable[[T], bool] = lambda name: True
    busy: float = 0.0
    """Seconds of the last trial on the device."""
    _under_way: dict[int, T] = field(default_factory=dict)
    _ready: list[tuple[T, Built | Measurement]] = field(default_factory=list)
    _begun: int = 0

    def run(self, work: Iterable[Work[T] | None], more: Callable[[], bool]) -> Iterator[tuple[T, Measurement]]:
        """Yield measurements while `more` returns True. `work` yields None if it has nothing now and may have something later."""
        items, last, open_ended = iter(work), None, True
        try:
            while more():
                open_ended = open_ended and self._fill(items)
                if not (open_ended or self._under_way or self._ready):
                    return
                self._collect(0.0 if self._ready else POLL)
                if not self._ready:
                    continue
                name, built = self._ready.pop(self._next(last))
                if not self.wanted(name):
                    continue
                last = self.group(name)
                before = self.crew.now()
                measurement = self.time(built)
                self.busy = self.crew.now() - before
                yield name, measurement
        finally:
            self.crew.abandon()

    def _fill(self, items: Iterator[Work[T] | None]) -> bool:
        """Fill the window with new work; return whether there may be more work."""
        while len(self._under_way) + len(self._ready) < self.window:
            try:
                item = next(items)
            except StopIteration:
                return False
            if item is None:
                return True
            name, made = item
            if isinstance(made, Kernel):
                self._under_way[self._begun] = name
                self.crew.begin(self._begun, made)
                self._begun += 1
            else:
                self._ready.append((name, made))
        return True

    def _collect(self, wait: float) -> None:
        """Move compiled kernels to the ready kernels, waiting at most `wait` seconds."""
        for ticket, built in self.crew.finished(wait):
            self._ready.append((self._under_way.pop(ticket), built))

    def _next(self, last: Hashable) -> int:
        """Index of the next trial: the oldest ready trial of the last group, otherwise the oldest."""
        return next((place for place, (name, _) in enumerate(self._ready) if self.group(name) == last), 0)
