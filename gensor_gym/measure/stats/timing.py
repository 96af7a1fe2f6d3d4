"""How a kernel is timed. The rules have a version: times of different protocols are never mixed.

Protocol 3: the calling thread stays on one CPU while a CPU's kernels are timed (`affinity`; protocol 1 let threads move). A CPU's
inputs begin where NumPy's do (`devices/buffers.py`; in protocol 2 they began at cache lines, which made a kernel that reads them
unpacked up to 18 percent faster than in use). Caches are warm: they contain the data of the kernel's previous call. Calls are
batched so that a sample lasts at least 2 ms, far above the clock's resolution and one wake-up of the thread pool. Warm-up lasts
at least 10 ms and one call, and at least three calls, including those that verified the kernel on the same buffers before.
Samples are taken until the distribution-free 95 percent interval of the median is within 1 percent of it on either side, or the
budget is spent. There are at least five samples, unless one call takes longer than the budget. The median is the result; all
samples are kept.

Protocol 4 (`apart`) is that of operators with constant weights: protocol 3, on CPUs with other weights at every call.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from gensor_gym.measure.stats.intervals import half_width

PROTOCOL = 3
_MOST_BATCH, _MOST_CALLS = 1 << 16, 1 << 20
"""Largest number of calls in a batch of the warm-up, and in a sample. A clock that says 0 s for the former does not run."""
_SHORT, _GROWTH = 1e-7, 64
"""Seconds of a batch that are too short to be known, because a clock may subtract more than it should. The next one has
`_GROWTH` times as many calls.
"""

Timer = Callable[[int], float]
"""Function that runs the kernel a number of times in a row and returns the total seconds."""


class ClockFault(Exception):
    """A clock measured zero, negative or infinite time, as events on a lost or reset device do. No sample is valid."""


@dataclass(frozen=True)
class TimingRules:
    """Settings of the timing protocol, in seconds. `budget` limits the sampling of one trial, without warm-up.

    The drift anchor, a fixed kernel (`measure/devices/anchor.py`), is timed again after `anchor_every` trials of a worker.
    """

    budget: float = 0.1
    sample: float = 2e-3
    warmup: float = 10e-3
    precision: float = 0.01
    least: int = 5
    most: int = 200
    anchor_every: int = 8

    def __post_init__(self) -> None:
        if not (self.budget > 0 and self.sample > 0 and self.warmup >= 0 and self.precision >= 0):
            raise ValueError(f"timing rules need positive seconds, got {self}")
        if not 1 <= self.least <= self.most:
            raise ValueError(f"timing rules need 1 <= least <= most samples, got {self.least} and {self.most}")
        if self.anchor_every < 1:
            raise ValueError(f"anchor_every={self.anchor_every}: expected 1 or more trials")


def warm_up(timer: Timer, rules: TimingRules, called: int = 0) -> float:
    """Call the kernel until it is warm. Return the seconds of the fastest call, since the first calls page memory in.

    `called` is the number of earlier calls of the kernel on these buffers, which have paged memory in. ClockFault if the clock
    says 0 s for very many calls.
    """
    spent, calls, batch, estimate = 0.0, 0, 1, math.inf
    while not calls or spent < rules.warmup or (called + calls < 3 and spent < rules.budget):
        took = sample(timer, batch) * batch if batch == _MOST_BATCH else elapsed(timer, batch)
        spent, calls = spent + took, calls + batch
        if took < _SHORT:
            batch = min(_GROWTH * batch, _MOST_BATCH)
            continue
        estimate = min(estimate, took / batch)
        fitting = max(1, min(_MOST_BATCH, int(0.25 * rules.warmup / estimate)))
        batch = 1 << fitting.bit_length() - 1  # few different counts, because a GPU captures a graph for each
    return max(min(estimate, spent / calls), 1e-9)


def sample(timer: Timer, calls: int) -> float:
    """Take one sample; return its seconds per call. ClockFault unless the time is above 0."""
    return _of_one(elapsed(timer, calls), calls)


def _of_one(seconds: float, calls: int) -> float:
    if seconds == 0.0:
        raise ClockFault(f"the clock says 0 s for {calls} calls")
    return seconds / calls


def elapsed(timer: Timer, calls: int) -> float:
    """Time `calls` calls. Return their seconds; 0 if the calls are too short for the clock.

    ClockFault for a negative or infinite time.
    """
    seconds = timer(calls)
    if not 0.0 <= seconds < math.inf:
        raise ClockFault(f"the clock says {seconds:g} s for {calls} calls")
    return seconds


def calls_per_sample(estimate: float, rules: TimingRules) -> int:
    """Return the number of calls that make one sample last `rules.sample` seconds, if a call takes `estimate` seconds."""
    return max(1, min(_MOST_CALLS, math.ceil(rules.sample / estimate)))


def _lengthened(calls: int, seconds: float, rules: TimingRules) -> int:
    """Return the number of calls of the next sample: more than `calls` if these took less than half of `rules.sample`.

    Other work on the machine can delay every call of the warm-up, whose estimate is then too long.
    """
    if seconds >= 0.5 * rules.sample:
        return calls
    fitting = calls_per_sample(max(seconds / calls, 1e-9), rules)
    return min(_MOST_CALLS, max(2 * calls, min(fitting, _GROWTH * calls)))


def take_samples(timer: Timer, rules: TimingRules, called: int = 0) -> tuple[list[float], int]:
    """Warm up and sample. Return (seconds per call of each sample in the order taken, number of calls in a sample).

    `called` is explained in `warm_up`. ClockFault if a time is not above 0.
    """
    calls = calls_per_sample(warm_up(timer, rules, called), rules)
    samples: list[float] = []
    start = time.perf_counter()
    while len(samples) < rules.most:
        seconds = elapsed(timer, calls)
        if (more := _lengthened(calls, seconds, rules)) > calls:
            samples, calls = [], more
            continue
        samples.append(_of_one(seconds, calls))
        spent = time.perf_counter() - start
        if len(samples) < rules.least:
            if samples[0] * calls > rules.budget:
                break  # one call takes longer than the budget, so one sample must do
            continue
        if spent > rules.budget or (len(samples) > rules.least and half_width(samples) < rules.precision):
            break
    return samples, calls
