"""The store of trials: what was measured once on a device is not measured again, and nothing acknowledged is lost.

SQLite with a write-ahead log. `synchronous=NORMAL` survives the death of the process at any instant: a commit has
handed its pages to the operating system before `put` returns, and the system outlives the process. (Only a power
failure could drop the last commits, and it cannot corrupt the file; an fsync per trial is too high a price for that.)
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.timing import PROTOCOL

SCHEMA_VERSION = 1
_BUSY_SECONDS = 30.0
_inherited: list[sqlite3.Connection] = []
"""Connections of the process that forked this one: kept, because closing them here would disturb their owner."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trials (
    digest TEXT NOT NULL, device TEXT NOT NULL, protocol INTEGER NOT NULL,
    operator TEXT NOT NULL, schedule TEXT NOT NULL, status TEXT NOT NULL,
    samples TEXT NOT NULL, conditions TEXT NOT NULL, error TEXT NOT NULL, created REAL NOT NULL,
    PRIMARY KEY (digest, device, protocol)
);
CREATE INDEX IF NOT EXISTS trials_by_operator ON trials (operator, device, protocol);
"""


@dataclass(frozen=True)
class Record:
    """One stored trial. `created` is seconds since 1970."""

    device: str
    operator: str
    schedule: str
    measurement: Measurement
    created: float


class Store:
    """A file of trials keyed by (kernel digest, device, protocol). Safe for threads, processes and kill -9."""

    def __init__(self, path: str | Path) -> None:
        """Open or create. ValueError when the file was written with another schema."""
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._owner = -1
        self._connection: sqlite3.Connection | None = None
        self._connect()

    def put(
        self, device: str, operator: str, schedule: str, measurement: Measurement, protocol: int = PROTOCOL
    ) -> None:
        """Write one trial; when this returns it survives kill -9. An older trial of the same key is replaced."""
        row = (
            measurement.digest,
            device,
            protocol,
            operator,
            schedule,
            measurement.status.value,
            json.dumps(measurement.samples),
            json.dumps(measurement.conditions, default=str),
            measurement.error,
            time.time(),
        )
        if not measurement.digest:
            raise ValueError(f"a trial is stored under its kernel's digest; this {measurement.status.value} has none")
        with self._lock:
            self._connect().execute(f"INSERT OR REPLACE INTO trials VALUES ({', '.join('?' * len(row))})", row)

    def get(self, digest: str, device: str, protocol: int = PROTOCOL) -> Measurement | None:
        """The measurement stored under a key, None when there is none."""
        query = "SELECT * FROM trials WHERE digest = ? AND device = ? AND protocol = ?"
        with self._lock:
            row = self._connect().execute(query, (digest, device, protocol)).fetchone()
        return None if row is None else _record(row).measurement

    def records(
        self, operator: str | None = None, device: str | None = None, protocol: int = PROTOCOL
    ) -> Iterator[Record]:
        """All trials of a protocol, oldest first, optionally of one operator (its text) or device."""
        query = "SELECT * FROM trials WHERE protocol = ?"
        values: list[object] = [protocol]
        for column, value in (("operator", operator), ("device", device)):
            if value is not None:
                query += f" AND {column} = ?"
                values.append(value)
        with self._lock:
            rows = self._connect().execute(query + " ORDER BY created, rowid", values).fetchall()
        yield from map(_record, rows)

    def __len__(self) -> int:
        """Trials of every protocol."""
        with self._lock:
            return int(self._connect().execute("SELECT COUNT(*) FROM trials").fetchone()[0])

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        """This process's connection: SQLite connections must not cross a fork."""
        if self._connection is None or self._owner != os.getpid():
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            _prepare(connection, self.path)
            if self._connection is not None:
                _inherited.append(self._connection)
            self._connection, self._owner = connection, os.getpid()
        return self._connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Switch to the write-ahead log and create the tables, against other processes doing the same at this moment."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:  # the switch to WAL does not wait for a lock as statements do, so it is tried again
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute("INSERT OR IGNORE INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
        found = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0]
    finally:
        connection.execute("COMMIT")
    if found != str(SCHEMA_VERSION):
        connection.close()
        raise ValueError(f"{path} is a store of schema {found}; this version reads schema {SCHEMA_VERSION}")


def _record(row: tuple) -> Record:
    """A row of the table as values."""
    digest, device, _, operator, schedule, status, samples, conditions, error, created = row
    measurement = Measurement(Status(status), tuple(json.loads(samples)), json.loads(conditions), error, digest)
    return Record(device, operator, schedule, measurement, created)
