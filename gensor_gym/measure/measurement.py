"""Result of measuring a schedule: a status, raw samples, and conditions such as compiler and threads."""

from __future__ import annotations

import enum
import statistics
from dataclasses import dataclass, field

from gensor_gym.measure.stats.intervals import QUIET

UNTIMED = "untimed"
"""Condition of a kernel that was verified only. Its one sample is the shorter of its first two calls."""


class Status(enum.StrEnum):
    """Outcome of a trial."""

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
    """Result of measuring one kernel. `samples` are seconds per call in the order taken; most statuses except OK have no samples.

    `error` says why the kernel failed. `digest` identifies the kernel.
    """

    status: Status
    samples: tuple[float, ...] = ()
    conditions: dict[str, object] = field(default_factory=dict)
    """Device, compiler, threads, cache state, protocol version, compile seconds, load average, isolation of the worker and more.
    """
    error: str = ""
    digest: str = ""

    @property
    def seconds(self) -> float:
        """Return the median latency in seconds; infinite unless the status is OK."""
        return statistics.median(self.samples) if self.status is Status.OK and self.samples else float("inf")

    @property
    def quiet_seconds(self) -> float:
        """Return an estimate of the seconds on an otherwise idle machine: the `QUIET` quantile of the samples.

        It is infinite unless the status is OK. Use it only to choose among programs. 206 programs were timed twice on an Intel
        Xeon, once next to other work: nine in ten of these quantiles changed by at most 11 percent, nine in ten medians by at
        most 72 percent.
        """
        if self.status is not Status.OK or not self.samples:
            return float("inf")
        return sorted(self.samples)[round(QUIET * (len(self.samples) - 1))]
