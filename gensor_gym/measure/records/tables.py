"""Files of timings: JSON lines (gzipped or not), a store, or Parquet, which also describes the table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gensor_gym.files import write_whole
from gensor_gym.foreign import parse_object, read_lines
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import Record, Store
from gensor_gym.measure.stats.timing import PROTOCOL
from gensor_gym.operators.types import Operator

STORES = (".db", ".sqlite")
FILES = (".jsonl", ".parquet")
ZIPPED = ".jsonl.gz"
MOST_BYTES = 128 << 20
"""Limit on the uncompressed bytes of a file of JSON lines."""
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("operator", "schedule", "status", "device", "error", "digest"), str), "samples": list, "conditions": dict,
    "protocol": int, "created": (int, float),
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Records of a file. `about` describes the table by the keys that `gensor record` writes; it is empty except for Parquet."""

    records: list[Record]
    about: Mapping[str, Any] = field(default_factory=dict)


def to_row(record: Record) -> dict[str, object]:
    """Convert a record to a dictionary of JSON values. Samples are seconds."""
    m = record.measurement
    return {
        "operator": record.operator,
        "schedule": record.schedule,
        "status": m.status.value,
        "samples": list(m.samples),
        "device": record.device,
        "conditions": m.conditions,
        "error": m.error,
        "digest": m.digest,
        "protocol": record.protocol,
        "created": record.created,
    }


def from_row(row: Mapping[str, Any]) -> Record:
    """Convert a row to a record. KeyError or ValueError without operator, schedule, status or samples."""
    conditions = row.get("conditions", {})
    measurement = Measurement(
        Status(row["status"]), tuple(row["samples"]), conditions, row.get("error", ""), row.get("digest", "")
    )
    protocol = row.get("protocol", conditions.get("protocol", PROTOCOL))
    return Record(row.get("device", ""), row["operator"], row["schedule"], measurement, row.get("created", 0.0), protocol)


def read_table(path: str | Path) -> Table:
    """Read a file of timings; of a store only trials of this version's timing protocol. ValueError if it cannot be read."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"no recorded table at {path}")
    if path.suffix in STORES:
        return Table(list(Store(path).records()))
    if path.suffix == ".parquet":
        from gensor_gym.measure.records import parquet

        rows, about = parquet.read(path)
        return Table([from_row(row) for row in rows], about)
    if path.suffix == ".jsonl" or path.name.endswith(ZIPPED):
        return Table(list(_read_lines(path)))
    raise ValueError(f"{path}: timings are read from {', '.join((*FILES, ZIPPED, *STORES))}")


def write_table(path: str | Path, records: Iterable[Record], about: Mapping[str, Any] | None = None) -> int:
    """Write records as JSON lines or Parquet, by the name's ending; return their number. ValueError for another ending.

    Only Parquet takes `about`, values of JSON that are stored in the file's metadata.
    """
    path, rows = Path(path), [to_row(record) for record in records]
    if path.suffix == ".parquet":
        from gensor_gym.measure.records import parquet

        parquet.write(path, rows, about or {})
    elif path.suffix == ".jsonl":
        write_whole(path, "".join(json.dumps(row, default=str) + "\n" for row in rows).encode())
    else:
        raise ValueError(f"{path}: timings are written as {' or '.join(FILES)}")
    return len(rows)


def file_name(op: Operator) -> str:
    """Return the name of an operator's file in a folder of tables, without its ending: letters, digits and underscores."""
    return re.sub(r"\W+", "_", re.sub(r"=", "", str(op))).strip("_")


def _read_lines(path: Path) -> Iterator[Record]:
    """Yield the records of a file of JSON lines; ValueError names the unreadable file or line."""
    try:
        lines = read_lines(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} does not read: {error}") from error
    for number, line in lines:
        try:
            row = parse_object(line, finite=False)
            _check_types(row)
            yield from_row(row)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: not a record ({error!r})") from error


def _check_types(row: Mapping[str, Any]) -> None:
    """Raise ValueError, which names the field, if a value of the row has a wrong type."""
    for name, kinds in _TYPES.items():
        if name in row and (not isinstance(row[name], kinds) or isinstance(row[name], bool)):
            raise ValueError(f"{name} is {row[name]!r}"[:200])
    if not all(type(value) in (int, float) for value in row.get("samples", ())):
        raise ValueError("samples: expected seconds")
