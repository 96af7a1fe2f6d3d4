"""The store of trials: a kernel is measured once on a device, and no acknowledged trial is lost.

SQLite with a write-ahead log. `synchronous=NORMAL` survives the death of the process at any instant: a commit hands its pages to
the operating system before `put` returns. A power failure could drop the last commits but cannot corrupt the file; an fsync for
each trial would cost too much. The schema has a version. An older file is migrated in one transaction when it is opened. If the
process dies meanwhile, the old file stays; other processes wait.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gensor_gym.cache.folders import VARIABLE
from gensor_gym.foreign import parse_json, parse_object
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.stats.apart import FROZEN, WEIGHTS_APART
from gensor_gym.measure.stats.timing import PROTOCOL
from gensor_gym.registry import check_known

SCHEMA_VERSION = 2
"""Version of the file's tables. Version 2 has a column for the median, so that a file can be listed without reading every sample.
"""
GROUPS = ("operator", "device", "protocol", "status")
"""Columns by which `Store.summary` groups trials and a `Selection` selects them."""
_BUSY_SECONDS = 30.0
_inherited: list[sqlite3.Connection] = []
"""SQLite connections of the process that forked this one. They are kept, because closing them would disturb their owner."""
_COLUMNS = (
    "digest", "device", "protocol", "operator", "schedule", "status", "samples", "conditions", "error", "created", "seconds",
)  # fmt: skip
_SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE trials (
    digest TEXT NOT NULL, device TEXT NOT NULL, protocol INTEGER NOT NULL,
    operator TEXT NOT NULL, schedule TEXT NOT NULL, status TEXT NOT NULL,
    samples TEXT NOT NULL, conditions TEXT NOT NULL, error TEXT NOT NULL, created REAL NOT NULL, seconds REAL,
    PRIMARY KEY (digest, device, protocol))""",
    "CREATE INDEX trials_by_operator ON trials (operator, device, protocol)",
    "INSERT INTO meta VALUES ('schema', '0')",
)
_OF_KEY = f"SELECT {', '.join(_COLUMNS)} FROM trials WHERE digest = ? AND device = ? AND protocol = ?"
FINAL = "final"
"""Condition that marks a trial whose program is the result of a search."""
SEARCHED = "searched"
"""Condition of a search's result: the search's budget in trials, which may exceed the number of programs found."""
IMPORTED = "imported"
"""Condition that marks a trial from another machine or user, whose time on this machine is unknown."""
OTHERS = "others"
"""Condition that lists other timings of a trial's kernel which gave way to it when stores were merged, newest first.

Each has `created`, its median `seconds` (null if it is not OK), and its `conditions`.
"""
_MOST_OTHERS, _LONGEST_CONDITION = 8, 1_000
"""Limits on the number of other timings, and on the characters of each of their conditions as JSON; longer ones are left out."""


@dataclass(frozen=True)
class Record:
    """One stored trial (a kernel that was measured once). `created` is seconds since 1970, 0 if unknown."""

    device: str
    operator: str
    schedule: str
    measurement: Measurement
    created: float
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class Selection:
    """Selects trials by the values of columns; None accepts any value.

    `before` selects older trials, in seconds since 1970. `current` selects those of this version's timing protocol for their
    operator (`stats.apart.protocol_of`).
    """

    operator: str | None = None
    device: str | None = None
    protocol: int | None = None
    status: str | None = None
    before: float | None = None
    current: bool = False

    def __post_init__(self) -> None:
        if self.status is not None:
            check_known("status", self.status, Status)

    def where(self) -> tuple[str, list[object]]:
        """Return the selection as (SQL condition, values of its placeholders)."""
        pairs = [(f"{name} = ?", getattr(self, name)) for name in GROUPS] + [("created < ?", self.before)]
        used = [(text, [value]) for text, value in pairs if value is not None]
        if self.current:
            used.append((f"protocol = CASE WHEN operator LIKE '{FROZEN}%' THEN ? ELSE ? END", [WEIGHTS_APART, PROTOCOL]))
        return " AND ".join(text for text, _ in used) or "1", [value for _, values in used for value in values]


@dataclass(frozen=True)
class Group:
    """Trials with equal values in some columns. `best` is their shortest median in seconds, None if no trial is OK."""

    values: tuple[object, ...]
    trials: int
    ok: int
    best: float | None
    first: float
    last: float


@dataclass(frozen=True)
class Added:
    """Result of `Store.add`: how many records were `new`, and how many `replaced` a stored record.

    `kept` counts stored records that stayed because the added record had no precedence. Such a record is not written.
    """

    new: int = 0
    replaced: int = 0
    kept: int = 0


class Store:
    """A file of trials keyed by (kernel digest, device, protocol). Safe for threads, processes and kill -9.

    Writing raises PermissionError if the file or its folder is read-only.
    """

    def __init__(self, path: str | Path) -> None:
        """Open the file or create it; migrate an older schema. ValueError for a newer schema, or a file that is not a store."""
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._owner = -1
        self._connection: sqlite3.Connection | None = None
        self._connect()

    def put(self, device: str, operator: str, schedule: str, measurement: Measurement, protocol: int = PROTOCOL) -> None:
        """Write one trial, replacing an older one with the same key. Once written, it survives kill -9."""
        if not measurement.digest:
            raise ValueError(f"a trial is stored under its kernel's digest; this {measurement.status.value} has none")
        row = _row(Record(device, operator, schedule, measurement, time.time(), protocol))
        with self._lock, _named(self.path):
            self._connect().execute(f"INSERT OR REPLACE INTO trials VALUES ({_marks(row)})", row)

    def add(self, records: Iterable[Record]) -> Added:
        """Write all records with their own dates, or none; count the new, replaced and skipped records.

        Of two records with equal keys the newer stays, but a user's own record has precedence over an imported one. The one that
        stays lists the conditions of the other (`OTHERS`). ValueError for a record without a digest; then nothing is written.
        """
        new = replaced = kept = 0
        with self._lock, _named(self.path):
            connection = self._connect()
            with _transaction(connection):
                for record in records:
                    if not record.measurement.digest:
                        raise ValueError(f"no digest: {record.operator} {record.schedule} cannot be stored")
                    key = (record.measurement.digest, record.device, record.protocol)
                    found = connection.execute(_OF_KEY, key).fetchone()
                    stored = None if found is None else _record(found)
                    if stored is None:
                        new, row = new + 1, _row(record)
                    elif _replaces(record, stored):
                        replaced, row = replaced + 1, _row(_with_other(record, stored))
                    else:
                        kept, row = kept + 1, _row(_with_other(stored, record))
                    connection.execute(f"INSERT OR REPLACE INTO trials VALUES ({_marks(row)})", row)
        return Added(new, replaced, kept)

    def get(self, digest: str, device: str, protocol: int = PROTOCOL) -> Measurement | None:
        """Return the measurement stored under a key; None if there is none."""
        with self._lock, _named(self.path):
            row = self._connect().execute(_OF_KEY, (digest, device, protocol)).fetchone()
        return None if row is None else _record(row).measurement

    def records(self, selection: Selection = Selection(current=True)) -> Iterator[Record]:  # noqa: B008
        """Yield the selected trials, oldest first; by default all `current` trials."""
        condition, values = selection.where()
        query = f"SELECT {', '.join(_COLUMNS)} FROM trials WHERE {condition} ORDER BY created, rowid"
        with self._lock, _named(self.path):
            rows = self._connect().execute(query, values).fetchall()
        yield from map(_record, rows)

    def summary(self, by: Sequence[str] = GROUPS, selection: Selection = Selection()) -> list[Group]:  # noqa: B008
        """Group the selected trials by the columns `by` and count each group. Return one `Group` per combination of values.

        ValueError for a column that is not in `GROUPS`, or for a file edited by hand.
        """
        if not by or set(by) - set(GROUPS):
            raise ValueError(f"trials are counted by {', '.join(GROUPS)}, not by {', '.join(by) or 'nothing'}")
        condition, values = selection.where()
        keys = ", ".join(by)
        counts = "COUNT(*), SUM(status = 'OK'), MIN(seconds), MIN(created), MAX(created)"
        query = f"SELECT {keys}, {counts} FROM trials WHERE {condition} GROUP BY {keys} ORDER BY {keys}"
        with self._lock, _named(self.path):
            rows = self._connect().execute(query, values).fetchall()
        for number in (number for row in rows for number in row[len(by) :]):
            if not isinstance(number, int | float | None):
                raise ValueError(f"{self.path} has {number!r} where numbers belong: it was not written by a store of trials")
        return [Group(tuple(row[: len(by)]), *row[len(by) :]) for row in rows]

    def prune(self, selection: Selection) -> int:
        """Delete the selected trials and shrink the file. Return the number of deleted trials."""
        condition, values = selection.where()
        with self._lock, _named(self.path):
            gone = self._connect().execute(f"DELETE FROM trials WHERE {condition}", values).rowcount
            if gone:
                self._connect().execute("VACUUM")
        return int(gone)

    def __len__(self) -> int:
        with self._lock:
            return int(self._connect().execute("SELECT COUNT(*) FROM trials").fetchone()[0])

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        """Return the connection of this process, opened at its first use: SQLite connections must not cross a fork."""
        if self._connection is None or self._owner != os.getpid():
            connection = _opened(self.path)
            try:
                with _named(self.path):
                    _prepare(connection, self.path)
            except BaseException:
                connection.close()
                raise
            if self._connection is not None:
                _inherited.append(self._connection)
            self._connection, self._owner = connection, os.getpid()
        return self._connection


def _opened(path: Path) -> sqlite3.Connection:
    """Open a new connection. sqlite3.OperationalError names a file that cannot be opened."""
    try:
        return sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise type(error)(f"{path}: {error}") from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Switch to the write-ahead log and create the tables, even if other processes do the same now."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:  # the switch to WAL does not wait for a lock as statements do, so it is tried again
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            if _is_read_only(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{path} is no store of trials: {error}; move it away, or name another") from error
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA trusted_schema=OFF")  # the file may be from somebody else
    connection.create_function("median_of", 2, _median_of)
    if _schema_of(connection, path) != SCHEMA_VERSION:
        with _transaction(connection):
            _migrate(connection, path)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to the current schema, inside a transaction. ValueError for a newer schema."""
    found = _schema_of(connection, path)
    if found > SCHEMA_VERSION:
        raise ValueError(f"{path} is a store of schema {found}; this version reads schema {SCHEMA_VERSION} and older ones")
    if found == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
    elif found == 1:
        connection.execute("ALTER TABLE trials ADD COLUMN seconds REAL")
        connection.execute("UPDATE trials SET seconds = median_of(status, samples)")
    connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (str(SCHEMA_VERSION),))


def _schema_of(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the file's schema, 0 for an empty file. ValueError for a database that is not a store."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() if "meta" in tables else None
    if row is None:
        raise ValueError(f"{path} is no store of trials; its tables are {', '.join(sorted(tables))}")
    return int(row[0])


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Return a context that raises PermissionError for a read-only store, and adds the file's name to other errors of SQLite."""
    try:
        yield
    except sqlite3.Error as error:
        if not _is_read_only(error):
            raise error if str(path) in str(error) else type(error)(f"{path}: {error}") from error
        wanted = f"expected a file and a folder that can; ${VARIABLE} names another folder for what is kept"
        raise PermissionError(f"{path} cannot be written: {wanted}") from error


def _is_read_only(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _median_of(status: str, samples: str) -> float | None:
    values = parse_json(samples)
    return statistics.median(values) if status == Status.OK and values else None


def _row(record: Record) -> tuple:
    m = record.measurement
    samples = json.dumps(m.samples)
    return (
        m.digest, record.device, record.protocol, record.operator, record.schedule, m.status.value, samples,
        json.dumps(m.conditions, default=str), m.error, record.created, _median_of(m.status, samples),
    )  # fmt: skip


def _replaces(record: Record, stored: Record) -> bool:
    """Return whether a record replaces a stored one: own records replace imported ones, otherwise newer records older ones."""
    old, new = (bool(one.measurement.conditions.get(IMPORTED)) for one in (stored, record))
    return record.created > stored.created if old == new else old


def _with_other(record: Record, other: Record) -> Record:
    """Return a record that lists the timing of another one, which gave way to it, and the timings that this one lists."""
    mine, theirs = record.measurement.conditions, other.measurement.conditions
    short = {
        name: value for name, value in theirs.items()
        if name != OTHERS and len(json.dumps(value, default=str)) <= _LONGEST_CONDITION
    }  # fmt: skip
    taken = {"created": other.created, "seconds": _median(other.measurement), "conditions": short}
    seen = {(record.created, _median(record.measurement))}
    others = []
    for one in sorted([*_others(mine), taken, *_others(theirs)], key=lambda one: -one["created"]):
        if (key := (one["created"], one["seconds"])) not in seen:
            seen.add(key)
            others.append(one)
    if not others:
        return record
    conditions = {**mine, OTHERS: others[:_MOST_OTHERS]}
    return replace(record, measurement=replace(record.measurement, conditions=conditions))


def _others(conditions: dict) -> list[dict]:
    """Return the other timings that conditions list; of a file edited by hand, those that have a date, a time and conditions."""
    found = conditions.get(OTHERS)
    wanted = {"created": int | float, "seconds": int | float | None, "conditions": dict}
    listed = found if isinstance(found, list) else []
    whole = [one for one in listed if isinstance(one, dict) and one.keys() == wanted.keys()]
    return [one for one in whole if all(isinstance(one[name], kind) for name, kind in wanted.items())]


def _median(measurement: Measurement) -> float | None:
    return statistics.median(measurement.samples) if measurement.status is Status.OK and measurement.samples else None


def _marks(row: tuple) -> str:
    return ", ".join("?" * len(row))


def _record(row: tuple) -> Record:
    digest, device, protocol, operator, schedule, status, samples, conditions, error, created, _ = row
    measurement = Measurement(Status(status), tuple(parse_json(samples)), parse_object(conditions, finite=False), error, digest)
    return Record(device, operator, schedule, measurement, created, protocol)
