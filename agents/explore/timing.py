"""Time programs on this machine, with verified kernels. One measurement runs at a time, and earlier results are kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from agents.explore.session import Position
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.pictures.facts import in_bytes, in_seconds
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.backend import measure
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.runners import runner_of
from gensor_gym.measure.stats.intervals import LEVEL, median_interval
from gensor_gym.operators.types import ITEM_BYTES

MOST_BYTES = 2 * 1024**3
"""Maximum size of an operator's tensors for which a measurement is allowed, in bytes."""
MOST_SECONDS = 2.0
"""Maximum model time of one call, in seconds. The limit is low because a measurement calls the kernel many times."""
MOST_KEPT = 1024
HOST = "host"
"""Name of the only CPU machine that can be measured: the one that Python runs on."""


@dataclass(frozen=True)
class Timed:
    """Result of a measurement, as texts for the page."""

    status: str
    time: str = ""
    interval: str = ""
    beside: str = ""
    """Comparison of the time with the model and the roofline, in words."""
    error: str = ""


class Timer:
    """Measures one program at a time and remembers the latest results."""

    def __init__(self, measured: Callable[[ConstructionGraph, Schedule], Measurement] | None = None) -> None:
        """Prepare measurements with the function `measured`; by default they run on this machine, in a worker process."""
        self._measured = measured or (lambda graph, schedule: measure(graph.operator, schedule, graph.hardware))
        self._known: dict[tuple[str, str, bytes], Measurement] = {}
        self._lock = Lock()

    def known(self, position: Position) -> Timed | None:
        """Return the earlier measurement of this program; None if it was not measured."""
        found = self._known.get(_key(position))
        return None if found is None else in_words(position, found)

    def measure(self, position: Position) -> Timed:
        """Measure the program of a position now.

        ValueError if it cannot be measured here, RuntimeError if another measurement is running.
        """
        if reason := absence(position):
            raise ValueError(reason)
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("another measurement is under way: one program is timed at a time")
        try:
            found = self._measured(position.graph, position.schedule)
            while len(self._known) >= MOST_KEPT:
                del self._known[next(iter(self._known))]
            self._known[_key(position)] = found
        finally:
            self._lock.release()
        return in_words(position, found)


def _key(position: Position) -> tuple[str, str, bytes]:
    return str(position.graph.operator), position.graph.hardware.name, position.schedule.key


def absence(position: Position) -> str:
    """Return the reason why a program cannot be timed here; empty if it can."""
    op, machine = position.graph.operator, position.graph.hardware
    if machine.kind == "cpu" and machine.name != HOST:
        return f"{machine.name} is not the processor of this machine: choose machine {HOST}"
    try:
        reason = runner_of(machine).absence(machine)
    except ValueError as error:
        return str(error)
    if reason:
        return f"{machine.name} cannot be timed here: {reason}"
    size = sum(math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype] for tensor in (*op.inputs, op.output))
    if size > MOST_BYTES:
        return f"its tensors take {in_bytes(size)}: at most {in_bytes(MOST_BYTES)} are made here"
    if float(position.seconds[-1]) > MOST_SECONDS:
        return f"one call takes {in_seconds(float(position.seconds[-1]))} by the model: at most {in_seconds(MOST_SECONDS)} here"
    return ""


def in_words(position: Position, found: Measurement) -> Timed:
    """Describe a measurement in words, compared with the model and the roofline."""
    if found.status is not Status.OK:
        return Timed(str(found.status), error=found.error[-2000:])
    seconds, model, floor = found.seconds, float(position.seconds[-1]), position.graph.floor
    low, high = median_interval(found.samples)
    flops = position.graph.operator.flops
    rate = f"{flops / seconds / 1e9:.4g} GFLOP/s, " if flops else ""
    return Timed(
        "OK", in_seconds(seconds),
        f"median of {len(found.samples)} samples, {LEVEL} interval {in_seconds(low)} to {in_seconds(high)}",
        f"{rate}{100 * floor / seconds:.2g} % of the roofline; {seconds / model:.2f} times what the model says",
    )  # fmt: skip
