"""A backend for tests of the environment: repeatable made-up times, some programs fail, every call is counted."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.analytic import program_digest
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.operators.types import Operator


class MadeUpBackend:
    """Times between 1 and 2 ms from the digest of the program; every fourth one crashes."""

    name = "made_up"
    stored = False

    def __init__(self) -> None:
        self.measured: list[str] = []
        self.closed = 0

    def device(self, hw: Hardware) -> str:
        return "nowhere"

    def digest(self, op: Operator, schedule: Schedule, hw: Hardware) -> str:
        return program_digest(op, schedule, hw)

    def expected(self, digest: str) -> float | None:
        """Seconds of a program, None where it crashes."""
        number = zlib.crc32(digest.encode())
        return None if number % 4 == 0 else 1e-3 * (1.0 + number / 2**32)

    def measure(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> list[Measurement]:
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> Iterator[Measurement]:
        for schedule in schedules:
            digest = self.digest(op, schedule, hw)
            self.measured.append(digest)
            seconds = self.expected(digest)
            yield Measurement(Status.CRASHED) if seconds is None else Measurement(Status.OK, (seconds,) * 3)

    def close(self) -> None:
        self.closed += 1
