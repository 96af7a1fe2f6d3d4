"""The `measured` backend: kernel times of Measured v1 for the machines in `measured.names`. No kernel runs.

`candidates` lists the programs of an operator that have a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.analytic import program_digest, program_key
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records import measured
from gensor_gym.operators.types import Operator
from gensor_gym.registry import check_known


class MeasuredBackend:
    """Backend that answers with the recorded `quiet` seconds of a program, or with its failure.

    Programs without a record are NOT_RECORDED.
    """

    name = "measured"
    stored = False

    def edition(self, hw: Hardware) -> str:
        """Return the digest of a machine's table, 16 hexadecimal digits."""
        return _edition(hw.name)

    def device(self, hw: Hardware) -> str:
        """Return the name of the recorded machine."""
        return hw.name

    def digest(self, op: Operator, schedule: Schedule, hw: Hardware) -> str:
        """Return the digest of the program; see `program_digest`."""
        return program_digest(op, schedule, hw)

    def measure(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> list[Measurement]:
        """Return the table's measurement of each schedule. ValueError for a machine without a table."""
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> Iterator[Measurement]:
        """Yield the measurements of `measure` one at a time."""
        check_known("machine of Measured v1", hw.name, measured.names())
        known = _programs(hw.name, str(op))
        for schedule in schedules:
            digest = self.digest(op, schedule, hw)
            status, seconds = known.get(program_key(schedule), (Status.NOT_RECORDED, 0.0))
            error = f"not in Measured v1: {op} {schedule}" if status is Status.NOT_RECORDED else ""
            yield Measurement(status, (seconds,) if status is Status.OK else (), error=error, digest=digest)

    def close(self) -> None:
        """Do nothing, because no processes need to end."""


def candidates(machine: str, operator: str) -> tuple[Schedule, ...]:
    """Return the recorded programs of an operator, sorted by their text. ValueError if the machine's table has none."""
    rows = _rows(machine).get(operator)
    if rows is None:
        raise ValueError(f"Measured v1 of {machine} has no programs of {operator}")
    return tuple(map(Schedule.parse, sorted(set(map(str, rows.schedule)))))


@cache
def _edition(machine: str) -> str:
    return hashlib.sha256(measured.path_of(machine).read_bytes()).hexdigest()[:16]


@lru_cache(maxsize=2)
def _rows(machine: str) -> Mapping[str, Any]:
    return {str(text): rows for text, rows in measured.load(machine).groupby("operator", observed=True)}


@lru_cache(maxsize=4096)
def _programs(machine: str, operator: str) -> Mapping[bytes, tuple[Status, float]]:
    """Return (status, `quiet` seconds) of an operator's recorded programs by `program_key`; empty for an unrecorded operator."""
    rows = _rows(machine).get(operator)
    if rows is None:
        return {}
    told = zip(rows.schedule, rows.status, rows.quiet, strict=True)
    return {program_key(Schedule.parse(text)): (Status(status), float(seconds)) for text, status, seconds in told}
