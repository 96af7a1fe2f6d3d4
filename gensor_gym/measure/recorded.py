"""The `recorded` backend: timings taken earlier, from a JSON-lines file or a store, looked up by the program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.measure.analytic import program_digest
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.store import Record, Store
from gensor_gym.operators.types import Operator


def write_records(path: str | Path, records: Iterable[Record]) -> int:
    """Write JSON lines (operator, schedule, status, samples in seconds, device, conditions); returns how many."""
    lines = []
    for record in records:
        m = record.measurement
        row = {
            "operator": record.operator,
            "schedule": record.schedule,
            "status": m.status.value,
            "samples": list(m.samples),
            "device": record.device,
            "conditions": m.conditions,
            "error": m.error,
        }
        lines.append(json.dumps(row) + "\n")
    Path(path).write_text("".join(lines), encoding="utf-8")
    return len(lines)


def read_records(path: str | Path) -> Iterator[Record]:
    """Records of a JSON-lines file; ValueError names the line that does not read."""
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                measurement = Measurement(
                    Status(row["status"]), tuple(row["samples"]), row.get("conditions", {}), row.get("error", "")
                )
                yield Record(row.get("device", ""), row["operator"], row["schedule"], measurement, 0.0)
            except (KeyError, ValueError) as error:
                raise ValueError(f"{path}, line {number}: not a record ({error})") from error


class RecordedBackend:
    """A table of earlier timings. What is not in it is NOT_RECORDED; nothing runs."""

    name = "recorded"
    stored = False

    def __init__(self, source: str | Path | Store | Iterable[Record], device: str | None = None) -> None:
        """Read JSON lines, a store (`.db`, `.sqlite` or a Store) or records; `device` keeps those of one device."""
        self._table: dict[tuple[str, bytes], Measurement] = {}
        self._devices: set[str] = set()
        for record in _open(source):
            if device is None or record.device == device:
                self._table[record.operator, _program(Schedule.parse(record.schedule))] = record.measurement
                self._devices.add(record.device)
        if len(self._devices) > 1:
            raise ValueError(f"the table mixes devices {sorted(self._devices)}; pass device= to choose one")

    def __len__(self) -> int:
        """Programs in the table."""
        return len(self._table)

    def device(self, hw: Hardware) -> str:
        """Where the table was recorded."""
        return next(iter(self._devices), "nothing recorded")

    def digest(self, op: Operator, schedule: Schedule, hw: Hardware) -> str:
        """See `analytic.program_digest`."""
        return program_digest(op, schedule, hw)

    def measure(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> list[Measurement]:
        """What the table holds for each schedule."""
        return list(self.stream(op, schedules, hw))

    def stream(self, op: Operator, schedules: Sequence[Schedule], hw: Hardware) -> Iterator[Measurement]:
        """As `measure`, one after the other."""
        for schedule in schedules:
            digest = self.digest(op, schedule, hw)
            found = self._table.get((str(op), _program(schedule)))
            if found is None:
                yield Measurement(Status.NOT_RECORDED, error=f"not in the table: {op} {schedule!r}", digest=digest)
            else:
                yield Measurement(found.status, found.samples, found.conditions, found.error, digest)

    def close(self) -> None:
        """Nothing to end."""


def _program(schedule: Schedule) -> bytes:
    """The row without the level under construction, which is no part of the program."""
    from gensor_gym.graph.layout import LEVEL

    row = schedule.row.copy()
    row[LEVEL] = 0
    return row.tobytes()


def _open(source: str | Path | Store | Iterable[Record]) -> Iterable[Record]:
    """Records of whatever was given."""
    if isinstance(source, Store):
        return source.records()
    if isinstance(source, (str, Path)):
        path = Path(source)
        if not path.exists():
            raise ValueError(f"no recorded table at {path}")
        return list(Store(path).records()) if path.suffix in (".db", ".sqlite") else read_records(path)
    return source
