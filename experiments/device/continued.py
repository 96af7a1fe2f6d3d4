"""Recorded tables that a run goes on with: rows of this device and of today's way of timing. Others mean nothing beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.common.journal import read_rows
from experiments.common.results import write_text
from experiments.device.work.progress import say
from gensor_gym.measure.stats.timing import PROTOCOL

Row = Mapping[str, Any]


def continue_table(folders: Sequence[Path], file: Path, device: str) -> None:
    """Copy the rows of earlier tables, gzipped or not, that are of this device; where the file has rows already it stays.

    Only rows of today's protocol are taken: a table of two is refused by whoever reads it. Older rows stay where they are;
    those of the file itself go into a file beside it. It is said how many.
    """
    _set_aside(file)
    if read_rows(file):
        return
    sources = [path for folder in folders for path in (folder / file.name, folder / f"{file.name}.gz") if path.exists()]
    rows = [row for path in sources if path.resolve() != file.resolve() for row in read_rows(path)]
    if not rows:
        return
    known = {_key(row): row for row in rows if _is_of_today(row) and (not device or row["device"] == device)}
    _write(file, ({"key": key, **row} for key, row in known.items()))
    older, others = (sum(not _is_of_today(row) for row in rows), sum(bool(device) and row["device"] != device for row in rows))
    said = f"{len(known)} rows of {', '.join(map(str, sources))} are continued; left out are"
    say(f"{said} {older} of another protocol than {PROTOCOL} and {others} of another device than {device or 'any'}")


def protocol_of(row: Row) -> int:
    """How a row was timed, as `measure/records/tables.py` reads it."""
    return int(row.get("protocol", row.get("conditions", {}).get("protocol", PROTOCOL)))


def _is_of_today(row: Row) -> bool:
    """Whether it was timed as trials are today."""
    return protocol_of(row) == PROTOCOL


def _key(row: Row) -> str:
    """Of a row of a table."""
    return f"{row['operator']} {row['schedule']} {row['digest']}"


def _write(file: Path, rows: Iterable[Row]) -> None:
    """A file of these rows, whole."""
    write_text(file, "".join(json.dumps(row) + "\n" for row in rows))


def _set_aside(file: Path) -> None:
    """Rows of older protocols go into a file beside it, which ends on their protocol."""
    rows = read_rows(file)
    older = [row for row in rows if not _is_of_today(row)]
    if not older:
        return
    for protocol in sorted({protocol_of(row) for row in older}):
        beside = file.with_name(f"{file.stem}_protocol{protocol}{file.suffix}")
        _write(beside, [*read_rows(beside), *(row for row in older if protocol_of(row) == protocol)])
        say(f"rows of protocol {protocol} of {file} are in {beside.name}: today's is {PROTOCOL}")
    _write(file, [row for row in rows if _is_of_today(row)])
