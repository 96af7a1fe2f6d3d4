"""Virtual time: compilers and jobs that take as long as they are said to, without anything being compiled or waited for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.workers.requests import Built

R_co = TypeVar("R_co", covariant=True)


@dataclass
class Clock:
    """Seconds that pass when they are said to."""

    now: float = 0.0

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class VirtualCrew:
    """A `Crew` of `size` compilers; each kernel takes one of them the seconds that `seconds` says."""

    def __init__(self, clock: Clock, size: int, seconds: Callable[[Kernel], float]) -> None:
        """All idle."""
        self._clock, self._seconds = clock, seconds
        self._free = [0.0] * size
        self._due: list[tuple[float, int, Kernel]] = []

    def now(self) -> float:
        """See `Crew`."""
        return self._clock.now

    def begin(self, ticket: int, kernel: Kernel) -> None:
        """The compiler that is free first takes it."""
        end = max(self._clock.now, heapq.heappop(self._free)) + self._seconds(kernel)
        heapq.heappush(self._free, end)
        heapq.heappush(self._due, (end, ticket, kernel))

    def finished(self, wait: float) -> list[tuple[int, Built | Measurement]]:
        """See `Crew`; waiting lets time pass."""
        if wait and not self._is_due():
            until = self._clock.now + wait
            self._clock.now = min(until, self._due[0][0]) if self._due else until
        found: list[tuple[int, Built | Measurement]] = []
        while self._is_due():
            _, ticket, kernel = heapq.heappop(self._due)
            found.append((ticket, Built(kernel, "")))
        return found

    def abandon(self) -> None:
        """See `Crew`."""
        self._due.clear()

    def _is_due(self) -> bool:
        """Whether something is compiled."""
        return bool(self._due) and self._due[0][0] <= self._clock.now


@dataclass(frozen=True)
class VirtualJob(Generic[R_co]):
    """A `Job` that is done at an instant."""

    clock: Clock
    at: float
    value: R_co

    def done(self) -> bool:
        """Whether it is that late."""
        return self.clock.now >= self.at

    def result(self) -> R_co:
        """RuntimeError before it is done: nobody else lets the time pass."""
        if not self.done():
            raise RuntimeError(f"asked at {self.clock.now:.3f} s for what is done at {self.at:.3f} s")
        return self.value
