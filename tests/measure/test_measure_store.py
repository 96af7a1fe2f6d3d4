"""The store: nothing acknowledged is lost, whoever writes at the same time and however a writer dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import IMPORTED, Added, Record, Selection, Store

OK = Measurement(Status.OK, (1e-3, 2e-3, 1.5e-3), {"device": "d", "threads": 2}, "", "abc")


def test_round_trip(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "store.db")
    store.put("cpu", "gemm(m=1)", "tile[..]", OK)
    assert store.get("abc", "cpu") == OK
    assert store.get("abc", "gpu") is None
    assert store.get("abc", "cpu", protocol=99) is None
    assert Store(store.path).get("abc", "cpu") == OK
    crash = Measurement(Status.CRASHED, error="SIGSEGV", digest="def")
    store.put("cpu", "gemm(m=1)", "tile[2]", crash)
    assert [r.measurement for r in store.records()] == [OK, crash]
    assert [r.schedule for r in store.records(Selection(operator="gemm(m=1)", device="cpu"))] == ["tile[..]", "tile[2]"]
    assert list(store.records(Selection("other"))) == []
    assert len(store) == 2


def test_without_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="digest"):
        Store(tmp_path / "s.db").put("cpu", "op", "s", Measurement(Status.OK, (1.0,)))


def test_what_was_measured_here_stays(tmp_path: Path) -> None:
    """A newer trial of another's does not take its place; an older own one takes that of another's; of a kind the newer stays."""
    own, imported = OK, replace(OK, samples=(9.0,), conditions={**OK.conditions, IMPORTED: True})
    store = Store(tmp_path / "s.db")

    def added(measurement: Measurement, created: float) -> Added:
        return store.add([Record("cpu", "op", "s", measurement, created)])

    assert added(imported, 5.0) == Added(new=1)
    assert added(own, 1.0) == Added(replaced=1) and store.get("abc", "cpu") == own
    assert added(imported, 9.0) == Added(kept=1) and store.get("abc", "cpu") == own
    assert added(replace(own, samples=(3.0,)), 0.5) == Added(kept=1)
    assert added(replace(own, samples=(3.0,)), 2.0) == Added(replaced=1)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A store on a disk that is read alone; what is there is read."""
    store, found = Store(tmp_path / "s.db"), Measurement(Status.OK, (1.0,), {}, "", "digest")
    store.put("cpu", "op", "s", found)
    store._connect().execute("PRAGMA query_only=ON")  # SQLite's word is that of a file without write permission
    record = next(store.records())
    for write in (lambda: store.put("cpu", "op", "t", found), lambda: store.add([record]), lambda: store.prune(Selection())):
        with pytest.raises(PermissionError, match=r"s\.db cannot be written: expected .*GENSOR_GYM_CACHE"):
            write()
    assert len(store) == 1 and store.get("digest", "cpu") == found


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(bytes(range(256)) * 20)
    with pytest.raises(ValueError, match=r"s\.db is no store of trials: .*; move it away"):
        Store(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()
    with pytest.raises(ValueError, match="birds"):
        Store(tmp_path / "other.db")


def test_other_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '999'")
    with pytest.raises(ValueError, match="schema 999"):
        Store(path)


WRITER = """
import sys
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import Store
store = Store(sys.argv[1])
for i in range(10**9):
    digest = f"{sys.argv[2]}-{i}"
    store.put("cpu", "op", "s", Measurement(Status.OK, (i + 1.0,), {}, "", digest))
    print(digest, flush=True)
"""


def test_kill_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """A writer is killed in the middle of its work again and again; every digest it printed is there."""
    path = tmp_path / "store.db"
    acknowledged: list[str] = []
    for round_number in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(round_number)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        acknowledged += [writer.stdout.readline().strip() for _ in range(20 + 17 * round_number)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += [line.strip() for line in writer.stdout if line.endswith("\n")]
        writer.wait()
        writer.stdout.close()
        store = Store(path)
        assert all(store.get(digest, "cpu") is not None for digest in acknowledged)
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        store.close()
    assert len(acknowledged) >= 180


def _write_many(path: Path, name: int) -> None:
    store = Store(path)
    for i in range(50):
        store.put("cpu", "op", "s", Measurement(Status.OK, (1.0,), {}, "", f"{name}-{i}"))


def test_parallel_writers(tmp_path: Path) -> None:
    """Processes that open and write one new file at once lose nothing."""
    path = tmp_path / "store.db"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(path, name)) for name in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert len(Store(path)) == 200


def test_forked_child_uses_its_own_connection(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    child = multiprocessing.get_context("fork").Process(target=store.put, args=("cpu", "op", "s", OK))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert store.get("abc", "cpu") == OK
