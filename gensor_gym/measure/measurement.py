"""What came of measuring a schedule: a typed status, raw samples and the conditions they were taken under."""

from __future__ import annotations

import enum
import statistics
from dataclasses import dataclass, field

from gensor_gym.measure.stats.intervals import QUIET


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
    """One measured kernel. `samples` are seconds per call, raw, in the order taken; empty unless the status is OK."""

    status: Status
    samples: tuple[float, ...] = ()
    conditions: dict[str, object] = field(default_factory=dict)
    """Device, compiler, threads, cache state, protocol version, compile seconds, time of day, what the worker was bound by."""
    error: str = ""
    digest: str = ""

    @property
    def seconds(self) -> float:
        """Median latency in seconds; infinite when the status is not OK."""
        return statistics.median(self.samples) if self.status is Status.OK and self.samples else float("inf")

    @property
    def quiet_seconds(self) -> float:
        """What it takes while nobody disturbs the machine: the `QUIET` quantile of the samples; infinite unless OK.

        For choices among programs alone. Of 206 programs timed twice on an Intel Xeon, once beside other work, nine in ten moved
        by no more than 11 percent; by the median, 72.
        """
        if self.status is not Status.OK or not self.samples:
            return float("inf")
        return sorted(self.samples)[round(QUIET * (len(self.samples) - 1))]
