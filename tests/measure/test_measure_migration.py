"""A store of an older schema is migrated where it lies, whoever else opens it and however the process ends."""

from __future__ import annotations

import multiprocessing
import signal
import sqlite3
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import SCHEMA_VERSION, Selection, Store

DUMP = Path(__file__).parents[1] / "data" / "store_schema_1.sql"
"""Forty trials of two protocols, written by the version that had schema 1."""


def old_store(path: Path) -> list[tuple]:
    """A file of schema 1; returns its rows."""
    with sqlite3.connect(path) as connection:
        connection.executescript(DUMP.read_text(encoding="utf-8"))
        rows = connection.execute("SELECT * FROM trials ORDER BY digest").fetchall()
    connection.close()
    assert len(rows) == 40
    return rows


def rows_of(path: Path) -> list[tuple]:
    """Rows as they lie in the file, without the code under test."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT * FROM trials ORDER BY digest").fetchall()
    finally:
        connection.close()


def structure(path: Path) -> list[tuple]:
    """Columns of the table and the schema's version."""
    connection = sqlite3.connect(path)
    try:
        columns = connection.execute("PRAGMA table_info(trials)").fetchall()
        return [*columns, *connection.execute("SELECT * FROM meta")]
    finally:
        connection.close()


def test_trials_are_kept_and_medians_added(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    before = old_store(path)
    store = Store(path)
    after = rows_of(path)
    assert [row[:10] for row in after] == before
    for row, record in zip(after, sorted(store.records(Selection()), key=lambda r: r.measurement.digest), strict=True):
        m = record.measurement
        assert row[10] == (statistics.median(m.samples) if m.status is Status.OK else None)
    Store(tmp_path / "new.db").close()
    assert structure(path) == structure(tmp_path / "new.db")
    assert structure(path)[-1] == ("schema", str(SCHEMA_VERSION))
    store.put("cpu x2", "op", "s", Measurement(Status.OK, (1.0, 3.0, 2.0), {}, "", "new"))
    assert len(Store(path)) == 41 and rows_of(path)[-1][10] == 2.0


def _open(path: Path, barrier: multiprocessing.synchronize.Barrier, name: int) -> None:
    barrier.wait()
    Store(path).put("cpu x2", "op", "s", Measurement(Status.OK, (1.0,), {}, "", f"by {name}"))


def test_processes_that_open_it_at_once(tmp_path: Path) -> None:
    for attempt in range(3):
        path = tmp_path / f"{attempt}.db"
        before = old_store(path)
        context = multiprocessing.get_context("fork")
        barrier = context.Barrier(4)
        openers = [context.Process(target=_open, args=(path, barrier, name)) for name in range(4)]
        for opener in openers:
            opener.start()
        for opener in openers:
            opener.join()
        assert [opener.exitcode for opener in openers] == [0] * 4
        after = rows_of(path)
        assert [row[:10] for row in after if row[0].startswith("digest")] == before and len(after) == 44


MIGRATION = """
import os, signal, sys
from gensor_gym.measure.records import store
whole, number = store._median_of, 0
def counting(status, samples):
    global number
    number += 1
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(status, samples)
store._median_of = counting
store.Store(sys.argv[1])
"""


@pytest.mark.parametrize("row", [1, 20, 40])
def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path, row: int) -> None:
    path = tmp_path / "s.db"
    before = old_store(path)
    died = subprocess.run([sys.executable, "-c", MIGRATION, str(path), str(row)], cwd=Path(__file__).parents[2], check=False)
    assert died.returncode == -signal.SIGKILL
    assert rows_of(path) == before and structure(path)[-1] == ("schema", "1")
    assert len(Store(path)) == 40
    assert [r[:10] for r in rows_of(path)] == before and structure(path)[-1] == ("schema", str(SCHEMA_VERSION))


def test_an_error_on_the_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    old_store(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE trials SET samples = 'torn' WHERE digest = 'digest-07'")
    connection.close()
    with pytest.raises(sqlite3.OperationalError):
        Store(path)
    assert structure(path)[-1] == ("schema", "1") and len(rows_of(path)[0]) == 10
