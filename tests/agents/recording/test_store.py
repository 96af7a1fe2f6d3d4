"""`python -m experiments store`: listing, moving and deleting trials."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from agents.recording.store import main
from gensor_gym import ConstructionGraph
from gensor_gym.measure.measurement import Measurement, Status
from gensor_gym.measure.records.store import IMPORTED, OTHERS, Added, Record, Selection, Store
from gensor_gym.measure.records.tables import read_table
from gensor_gym.measure.records.tuned import tuned_path
from gensor_gym.measure.stats.timing import PROTOCOL

DAY = 86400.0
SCHEDULE = str(ConstructionGraph("gemm(m=8, n=8, k=8)", "h200").initial())


def record(digest: str, status: Status = Status.OK, age: float = 0.0, **other: object) -> Record:
    """A trial that was made `age` days ago."""
    samples = (3e-6, 1e-6, 2e-6) if status is Status.OK else ()
    m = Measurement(status, samples, {"passes": [1, 1, 2], "compile_seconds": 0.5, "threads": 2}, "", digest)
    fields = {"device": "cpu x2", "operator": "gemm(m=8, n=8, k=8)", "protocol": PROTOCOL} | other
    return Record(schedule=SCHEDULE, measurement=m, created=time.time() - age * DAY, **fields)  # type: ignore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = Store(tmp_path / "a.sqlite")
    old = record("c", age=40, operator="gemv(m=8, k=8)", protocol=1, device="old cpu")
    store.add([record("a"), record("b", Status.CRASHED, age=3), old])
    return store.path


def everything(path: Path) -> list[Record]:
    return sorted(Store(path).records(Selection()), key=lambda r: r.measurement.digest)


def test_a_store_that_was_edited_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "edited.sqlite"
    Store(path).put("d", "gemm(m=4, n=4, k=4)", "s", Measurement(Status.OK, (1e-6,), {}, "", "digest"))
    for column, value in (("created", "yesterday"), ("seconds", "fast")):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"UPDATE trials SET {column} = ?", (value,))
        assert main(["list", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f"{path} has {value!r} where numbers belong: it was not written by a store of trials"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"UPDATE trials SET {column} = 1.0")


def test_list_counts_and_shows_the_best(path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # tables fit the screen
    assert main(["list", str(path), "--by", "operator,device"]) == 0
    total, head, _, *lines = capsys.readouterr().out.rstrip().splitlines()
    assert head.split() == ["operator", "device", "trials", "OK", "best", "from", "to"]
    assert lines[0].split()[:10] == ["gemm(m=8,", "n=8,", "k=8)", "cpu", "x2", "2", "1", "2", "µs", lines[0].split()[9]]
    assert len(lines) == 2 and total.startswith("3 trials")
    assert main(["list", str(path), "--status", "CRASHED"]) == 0
    assert "1 trials" in capsys.readouterr().out
    assert main(["list", str(path), "--by", "colour"]) == 2
    assert "counted by operator, device, protocol, status, not by colour" in capsys.readouterr().err
    assert main(["list", str(path), "--status", "GOOD"]) == 2 and "expected one of OK" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_what_is_exported_comes_back_whole(path: Path, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"t.{ending}"
    assert main(["export", str(path), str(file)]) == 0
    assert main(["import", "--own", str(tmp_path / "b.sqlite"), str(file)]) == 0
    assert everything(tmp_path / "b.sqlite") == everything(path)
    assert main(["import", str(tmp_path / "c.sqlite"), str(file)]) == 0
    assert all(one.measurement.conditions[IMPORTED] is True for one in everything(tmp_path / "c.sqlite"))
    assert main(["export", str(path), str(file), "--device", "old cpu"]) == 0
    assert [r.measurement.digest for r in read_table(file).records] == ["c"]


def test_bad_files_change_nothing(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "good.jsonl").write_text("")
    (tmp_path / "bad.jsonl").write_text('{"operator": "x"}\n')
    row = {"operator": "gemm(m=8, n=8, k=8)", "schedule": SCHEDULE, "status": "OK", "samples": [1.0]}
    (tmp_path / "none.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "bad.parquet").write_text("no such thing")
    for file, words in (
        ("bad.jsonl", "line 1: not a record"), ("none.jsonl", "no digest"), ("bad.parquet", "no Parquet file"),
        ("a.txt", "no recorded table"), ("missing.jsonl", "no recorded table"),
    ):  # fmt: skip
        assert main(["import", str(path), str(tmp_path / "good.jsonl"), str(tmp_path / file)]) == 2
        assert words in capsys.readouterr().err
    assert len(Store(path)) == 3
    assert main(["export", str(path), str(tmp_path / "x.csv")]) == 2 and ".jsonl or .parquet" in capsys.readouterr().err
    assert main(["list", str(tmp_path / "none.sqlite")]) == 2 and "no store at" in capsys.readouterr().err
    assert not (tmp_path / "none.sqlite").exists()


def test_the_newer_of_two_trials_wins(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = Store(tmp_path / "other.sqlite")
    other.add([record("a", Status.TIMEOUT, age=9), record("b", age=1), record("d")])
    assert main(["merge", "--own", str(path), str(other.path)]) == 0
    assert "1 new, 1 replaced older ones, 1 left out" in capsys.readouterr().out
    found = {r.measurement.digest: r.measurement.status for r in everything(path)}
    assert found == {"a": Status.OK, "b": Status.OK, "c": Status.OK, "d": Status.OK}
    assert main(["merge", "--own", str(path), str(other.path)]) == 0
    assert "0 new, 0 replaced older ones, 3 left out" in capsys.readouterr().out
    assert main(["merge", "--own", str(tmp_path / "new.sqlite"), str(path), str(other.path)]) == 0
    assert everything(tmp_path / "new.sqlite") == everything(path)


def test_a_merge_keeps_the_conditions_of_both_sides(tmp_path: Path) -> None:
    """The trial that stays lists the other; merged again, in either order and from a file, nothing is listed twice."""
    sides = [Store(tmp_path / f"{name}.sqlite") for name in "ab"]
    for age, side in enumerate(sides):
        one = record("a", age=age)
        conditions = {**one.measurement.conditions, "threads": 2 + age, "long": "x" * 2000}
        side.add([replace(one, measurement=replace(one.measurement, conditions=conditions))])
    for into, other in (sides, sides[::-1]):
        assert main(["merge", "--own", str(into.path), str(other.path)]) == 0
    (first,), (second,) = everything(sides[0].path), everything(sides[1].path)
    assert first == second and first.measurement.conditions["threads"] == 2
    (listed,) = first.measurement.conditions[OTHERS]
    assert listed["conditions"]["threads"] == 3 and listed["seconds"] == 2e-6 and "long" not in listed["conditions"]
    assert main(["export", str(sides[0].path), str(tmp_path / "all.jsonl")]) == 0
    assert main(["import", "--own", str(sides[1].path), str(tmp_path / "all.jsonl")]) == 0
    assert everything(sides[1].path) == [first]


def test_other_timings_that_were_edited_are_passed_over(tmp_path: Path) -> None:
    one, store = record("a", age=1), Store(tmp_path / "a.sqlite")
    odd = {OTHERS: [1, {"created": 1.0}, {"created": "x", "seconds": 1.0, "conditions": {}}]}
    store.add([replace(one, measurement=replace(one.measurement, conditions=odd))])
    store.add([record("a")])
    (listed,) = everything(store.path)[0].measurement.conditions[OTHERS]
    assert listed["created"] == one.created and listed["conditions"] == {}


@pytest.mark.thorough
def test_tuned_names_the_store_of_searches(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENSOR_GYM_CACHE", str(tmp_path / "cache"))
    assert main(["import", "tuned", str(path)]) == 0
    assert [r.measurement.digest for r in everything(tuned_path())] == ["a", "b"]  # of this timing protocol
    assert tuned_path().is_relative_to(tmp_path)


def test_records_are_added_all_or_none(path: Path) -> None:
    with pytest.raises(ValueError, match="no digest"):
        Store(path).add([record("e"), record("")])
    assert len(Store(path)) == 3
    assert Store(path).add([]) == Added(0, 0, 0)


def test_prune_deletes_only_when_told_to(path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["prune", str(path)]) == 2 and "give --operator" in capsys.readouterr().err
    assert main(["prune", str(path), "--apply"]) == 2
    assert main(["prune", str(path), "--older-than", "2"]) == 0
    assert "2 of 3 trials would be deleted" in capsys.readouterr().out and len(Store(path)) == 3
    assert main(["prune", str(path), "--older-than", "2", "--status", "CRASHED", "--apply"]) == 0
    assert [r.measurement.digest for r in everything(path)] == ["a", "c"]
    assert main(["prune", str(path), "--protocol", "1", "--apply"]) == 0
    assert main(["prune", str(path), "--device", "cpu x2", "--operator", "gemv(m=8, k=8)", "--apply"]) == 0
    assert [r.measurement.digest for r in everything(path)] == ["a"]


@pytest.mark.thorough
def test_help_names_every_command() -> None:
    command = [sys.executable, "-m", "experiments", "store"]
    text = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(word in text for word in ("list", "export", "import", "merge", "prune", "newer"))
    assert "--apply" in subprocess.run([*command, "prune", "--help"], capture_output=True, text=True, check=True).stdout
    bare = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bare.returncode == 2 and "COMMAND" in bare.stderr


def test_lines_without_digest_can_be_read_but_not_stored(tmp_path: Path) -> None:
    row = {"operator": "x", "schedule": "s", "status": "OK", "samples": [1.0]}
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")
    (found,) = read_table(tmp_path / "t.jsonl").records
    assert (found.protocol, found.created, found.measurement.digest) == (PROTOCOL, 0.0, "")
