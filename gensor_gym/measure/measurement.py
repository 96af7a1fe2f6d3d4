"""The result of measuring a schedule: a typed status, raw samples and conditions."""

from __future__ import annotations

import enum
import statistics
from dataclasses import dataclass, field

from gensor_gym.measure.stats.intervals import QUIET

UNTIMED = "untimed"
"""Condition of a kernel that was verified only: its one sample is the shorter of its first two calls."""


class Status(enum.StrEnum):
    """How a trial ended."""

    OK = "OK"
    ILLEGAL = "ILLEGAL"
    COMPILE_ERROR = "COMPILE_ERROR"
    LAUNCH_ERROR = "LAUNCH_ERROR"
    WRONG_ANSWER = "WRONG_ANSWER"
    TIMEOUT = "TIMEOUT"
    CRASHED = "CRASHED"
    NOT_RECORDED = "NOT_RECORDED"
    IMPLAUSIBLE = "IMPLAUSIBLE"


@dataclass(frozen=True)
class Measurement:
    """One measured kernel. `samples` are raw seconds per call in the order taken; most statuses other than OK have none."""

    status: Status
    samples: tuple[float, ...] = ()
    conditions: dict[str, object] = field(default_factory=dict)
    """Device, compiler, threads, cache state, protocol version, compile seconds, load average, isolation of the worker, and the
    like."""
    error: str = ""
    digest: str = ""

    @property
    def seconds(self) -> float:
        """Median latency in seconds; infinite when the status is not OK."""
        return statistics.median(self.samples) if self.status is Status.OK and self.samples else float("inf")

    @property
    def quiet_seconds(self) -> float:
        """Seconds on an otherwise idle machine: the `QUIET` quantile of the samples; infinite unless the status is OK.

        Use it only to choose among programs. When 206 programs were timed twice on an Intel Xeon, once next to other work, nine
        in ten of these quantiles changed by at most 11 percent, and nine in ten medians by at most 72 percent.
        """
        if self.status is not Status.OK or not self.samples:
            return float("inf")
        return sorted(self.samples)[round(QUIET * (len(self.samples) - 1))]
