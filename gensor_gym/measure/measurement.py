"""What came of measuring a schedule: a typed status, raw samples and the conditions they were taken under."""

from __future__ import annotations

import enum
import statistics
from dataclasses import dataclass, field


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
