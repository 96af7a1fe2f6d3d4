"""Graphs that record the best latency after every model evaluation as a curve, and end a search at a limit.

Curves serve comparisons at equal numbers of evaluations and at equal processor seconds. Processor seconds of a search on one
thread are its wall-clock time on an idle machine, and other processes do not increase them. Evaluations through the graph are
recorded one by one. Compiled walks evaluate without the graph and report their results (`ConstructionGraph.charge`). A policy's
observer reports after every step of its episodes.
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
    """Learning curve of a search: the evaluation, time and latency of every improvement, in order."""

    evaluations: list[int] = field(default_factory=list)
    """Number of model evaluations up to and including each improvement."""
    latencies: list[float] = field(default_factory=list)
    """Model seconds of the best program after each improvement."""
    elapsed: list[float] = field(default_factory=list)
    """Processor seconds from the beginning of the search to each improvement."""

    def add(self, evaluations: int, latency: float, elapsed: float) -> None:
        """Append an evaluation to the curve if its latency is a new minimum."""
        if math.isfinite(latency) and (not self.latencies or latency < self.latencies[-1]):
            self.evaluations.append(evaluations)
            self.latencies.append(latency)
            self.elapsed.append(elapsed)

    def best(self, evaluations: np.ndarray | float) -> np.ndarray:
        """Return the best latency after each number of `evaluations`, in the same shape; infinite before the first program."""
        at = np.searchsorted(np.array(self.evaluations), evaluations, side="right")
        return np.array([math.inf, *self.latencies])[at]


class Watched:
    """Mixin for graphs that record the best latency after every model evaluation, and end a search at a limit.

    BudgetSpent is raised when `limit` evaluations and `seconds` are both spent. If `seconds` is 0, no evaluation beyond the limit
    is made. A compiled walk is charged when it ends; results of the walk that are beyond both limits do not enter the curve.
    """

    clock: Callable[[], float] = staticmethod(time.process_time)
    """Function that returns seconds from an arbitrary origin."""
    evaluations: int

    def watch(self, limit: int, seconds: float = 0.0) -> None:
        """Set the limits on evaluations and seconds, begin an empty curve, and start the clock."""
        self.limit, self.seconds = limit, seconds
        self.curve = Curve()
        self.start()

    def start(self) -> None:
        """Start the clock now."""
        self._begun = self._last = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since `watch` or `start` was called, by `clock`: by default processor seconds."""
        return self.clock() - self._begun

    def charge(self, evaluations: int, improvements: np.ndarray | None = None) -> None:
        """Count evaluations that compiled code has made, and add their improvements to the curve.

        `improvements` are pairs (number of the evaluation within this call, latency). The time of an improvement is interpolated
        between the previous charge and now.
        """
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
        """Evaluate encoded programs by the model and record improvements; return their seconds.

        BudgetSpent if `seconds` are spent and the programs exceed the limit of evaluations.
        """
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
        """Add the best latency so far to the curve, for searches whose evaluations are not recorded one by one."""
        self.curve.add(self.evaluations, latency, self.elapsed)

    def _end(self) -> None:
        if not self.seconds:
            self.evaluations = min(self.evaluations, self.limit)
        raise BudgetSpent(f"{self.evaluations} of {self.limit} model evaluations and {self.seconds} seconds spent")


class WatchedGraph(Watched, ConstructionGraph):
    """A construction graph that records a curve over evaluations and seconds; see `Watched`."""

    def __init__(self, operator: Operator | str, hardware: Hardware | str, space: str, limit: int, seconds: float = 0.0) -> None:
        """Make the graph and begin its curve. ValueError for a limit below 1, or an unknown operator, machine or space."""
        if limit < 1:
            raise ValueError(f"limit {limit!r}: expected a number of evaluations, 1 or more")
        super().__init__(operator, hardware, space)
        self.watch(limit, seconds)


class WatchedGir(Watched, GirGraph):
    """A graph of a fused operator that records a curve over evaluations and seconds; see `Watched`."""

    def __init__(self, operator: Dataflow, hardware: Hardware, space: str, limit: int, seconds: float) -> None:
        super().__init__(operator, hardware, space)
        self.watch(limit, seconds)
