"""The store of trials: what was measured here stays, older files and imports are read."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.recording.store import main
from gensor_gym import ConstructionGraph, Schedule
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.imported import _device, fault
from gensor_gym.measure.records.store import IMPORTED, OTHERS, SCHEMA_VERSION, Added, Record, Selection, Store
from gensor_gym.measure.records.tables import from_row

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
    def kept() -> Measurement | None:
        found = store.get("abc", "cpu")
        return found and replace(found, conditions={name: value for name, value in found.conditions.items() if name != OTHERS})

    assert added(own, 1.0) == Added(replaced=1) and kept() == own
    assert added(imported, 9.0) == Added(kept=1) and kept() == own
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


OPERATOR = "gemm(m=24, n=32, k=16)"
FIRST = ConstructionGraph(OPERATOR, "cascade_lake", "extended").initial()
WIDE = FIRST.row.copy()
WIDE[:24] = 1 << 20
HERE = "this machine"
GOOD: dict[str, Any] = {
    "operator": OPERATOR, "schedule": str(FIRST), "status": "OK",
    "samples": [2e-6, 1e-6], "device": "another x4", "digest": "d" * 64, "conditions": {"threads": 4}, "created": 1.7e9,
}  # fmt: skip
FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "no operator": ({"operator": "rm(x=1)"}, "rm"),
    "another text of it": ({"operator": "gemm(n=32, m=24, k=16)"}, "expected it written as"),
    "no schedule of a graph": ({"operator": "fused@0123456789ab", "schedule": "import os"}, "schedule is not one"),
    "no schedule": ({"schedule": "import os"}, "not a schedule"),
    "a tile of 0": ({"schedule": GOOD["schedule"].replace("tile[1x", "tile[0x", 1)}, "below 1"),
    "a tile beyond int32": ({"schedule": GOOD["schedule"].replace("tile[1x", "tile[99999999999x", 1)}, "int"),
    "not legal here": ({"schedule": str(Schedule(WIDE)), "device": HERE}, "not legal here"),
    "a negative time": ({"samples": [1e-6, -1e-6]}, "-1e-06"),
    "no time at all": ({"samples": [float("nan")]}, "nan"),
    "an endless time": ({"samples": [float("inf")]}, "inf"),
    "a time in words": ({"samples": ["1"]}, "expected seconds"),
    "OK without a sample": ({"samples": []}, "0 samples"),
    "a huge text": ({"error": "x" * 10_000_000}, "10000000 characters"),
    "huge conditions": ({"conditions": {"x": "y" * 1_000_000}}, "conditions have"),
    "conditions that are none": ({"conditions": {}, "device": 7}, "device is 7"),
    "a date to come": ({"created": time.time() + 1e7}, "not to come"),
    "a protocol in words": ({"protocol": "2"}, "protocol"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    change, words = FORGED[name]
    if change.get("device") == HERE:
        change = change | {"device": _device()}
    path, store = tmp_path / "t.jsonl", tmp_path / "s.sqlite"
    path.write_text("".join(json.dumps(row) + "\n" for row in (GOOD, GOOD | change)))
    assert main(["import", str(store), str(path)]) == 2
    said = capsys.readouterr().err
    assert ("record 2: " in said or "line 2: " in said) and words in said and len(said) < 20_000
    assert not store.exists()


def test_merged_stores_are_looked_at_as_well(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    Store(tmp_path / "b.sqlite").add([from_row(GOOD | {"samples": [-1.0]})])
    assert main(["merge", str(tmp_path / "a.sqlite"), str(tmp_path / "b.sqlite")]) == 2
    assert "-1.0" in capsys.readouterr().err


def test_what_is_right_is_taken(tmp_path: Path) -> None:
    for device in ("another x4", _device()):
        assert fault(from_row(GOOD | {"device": device})) == ""
    graph = {"operator": "fused@0123456789ab", "digest": "e" * 64}  # of a network: known by its digest alone
    (tmp_path / "t.jsonl").write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD | graph) + "\n")
    assert main(["import", str(tmp_path / "s.sqlite"), str(tmp_path / "t.jsonl")]) == 0
    assert len(Store(tmp_path / "s.sqlite")) == 2


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


def test_an_error_names_the_store_once(tmp_path: Path) -> None:
    (tmp_path / "s.db").mkdir()
    with pytest.raises(sqlite3.OperationalError, match=r"^\S+/s\.db: unable to open database file$"):
        Store(tmp_path / "s.db")
