"""A construction graph with a curve: the best latency after every evaluation of the model, and an end of the search.

For comparisons at equal evaluations, and at equal processor seconds: for a search on one thread these are its wall-clock time on
an idle machine, and other work does not increase them. Evaluations through the graph are recorded one by one. Compiled walks,
which evaluate by themselves, report their results (`ConstructionGraph.charge`), and so does a policy's observer after every step
of its episodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.graph import GirGraph
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.session import BudgetSpent
from gensor_gym.operators.types import Operator


@dataclass
class Curve:
    """A search so far: every improvement, in order."""

    evaluations: list[int] = field(default_factory=list)
    """Evaluations of the model, that of the improvement among them."""
    latencies: list[float] = field(default_factory=list)
    """Seconds by the model of the best program then."""
    elapsed: list[float] = field(default_factory=list)
    """Processor seconds since the search began."""

    def add(self, evaluations: int, latency: float, elapsed: float) -> None:
        """An evaluation; nothing if it is no improvement."""
        if math.isfinite(latency) and (not self.latencies or latency < self.latencies[-1]):
            self.evaluations.append(evaluations)
            self.latencies.append(latency)
            self.elapsed.append(elapsed)

    def best(self, evaluations: np.ndarray | float) -> np.ndarray:
        """Best latency after `evaluations`, in their shape; infinite before the first program."""
        at = np.searchsorted(np.array(self.evaluations), evaluations, side="right")
        return np.array([math.inf, *self.latencies])[at]


class Watched:
    """Mixin of a graph with a curve. BudgetSpent ends the search when `limit` evaluations and `seconds` are both spent.

    Without seconds no evaluation beyond the limit is made. Compiled walks are charged when they end; their results beyond both
    limits do not enter the curve.
    """

    clock: Callable[[], float] = staticmethod(time.process_time)
    """Seconds since any time."""
    evaluations: int

    def watch(self, limit: int, seconds: float = 0.0) -> None:
        """Begin with an empty curve."""
        self.limit, self.seconds = limit, seconds
        self.curve = Curve()
        self.start()

    def start(self) -> None:
        """Begin to count seconds now."""
        self._begun = self._last = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds of the clock since `start`."""
        return self.clock() - self._begun

    def charge(self, evaluations: int, improvements: np.ndarray | None = None) -> None:
        """Count, and note improvements; their times are spread evenly over the time since the charge before."""
        before, since, now = self.evaluations, self._last - self._begun, self.elapsed
        super().charge(evaluations)  # type: ignore[misc]
        for at, latency in improvements if improvements is not None else ():
            when = since + (now - since) * float(at) / evaluations
            if before + at <= self.limit or when <= self.seconds:
                self.curve.add(before + int(at), float(latency), when)
        self._last = self.clock()
        if self.evaluations > self.limit and self.elapsed >= self.seconds:
            self._end()

    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """As of any graph; once the seconds are spent, up to the limit."""
        before = self.evaluations
        allowed = rows if self.elapsed < self.seconds else rows[: max(0, self.limit - before)]
        seconds: np.ndarray = super().latencies(allowed)  # type: ignore[misc]
        now = self.elapsed
        least = np.minimum.accumulate(seconds) if len(seconds) else seconds
        for i in np.flatnonzero(np.diff(least, prepend=np.inf) < 0):
            self.curve.add(before + int(i) + 1, float(least[i]), now)
        if len(allowed) < len(rows):
            self._end()
        return seconds

    def note(self, latency: float) -> None:
        """The best program that a round ended with, for searches whose evaluations were not watched one by one."""
        self.curve.add(self.evaluations, latency, self.elapsed)

    def _end(self) -> None:
        """Nothing is left."""
        if not self.seconds:
            self.evaluations = min(self.evaluations, self.limit)
        raise BudgetSpent(f"{self.evaluations} of {self.limit} model evaluations and {self.seconds} seconds spent")


class WatchedGraph(Watched, ConstructionGraph):
    """A construction graph with a curve over evaluations and seconds."""

    def __init__(self, operator: Operator | str, hardware: Hardware | str, space: str, limit: int, seconds: float = 0.0) -> None:
        """ValueError for a limit below 1, or a task that there is not."""
        if limit < 1:
            raise ValueError(f"limit {limit!r}: expected a number of evaluations, 1 or more")
        super().__init__(operator, hardware, space)
        self.watch(limit, seconds)


class WatchedGir(Watched, GirGraph):
    """A graph of a fused operator with a curve."""

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str, limit: int, seconds: float) -> None:
        """See `Watched`."""
        super().__init__(operator, hardware, space)
        self.watch(limit, seconds)
