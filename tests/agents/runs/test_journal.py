"""Journals and files of runs: whole or what they were, one writer at a time."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agents.runs.journal import Journal, append_row, locked, read_rows
from experiments import entry
from experiments.evidence import ship
from gensor_gym.files import whole
from gensor_gym.graph.compiling.notice import QUIET
from tests.support.thorough import thorough_but

ROOT = Path(__file__).resolve().parents[3]
KILLED = """
import os, signal, sys
from pathlib import Path
from agents.runs.journal import Journal

class Half:
    def __init__(self, file): self.file = file
    def seek(self, *where): return self.file.seek(*where)
    def write(self, text):
        self.file.write(bytes(text)[: len(text) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

journal = Journal(Path(sys.argv[1]))
journal.add({"key": "a", "value": 1})
journal.add({"key": "b", "value": 2}, {"key": "c", "value": 3})
journal._file = Half(journal._file)
journal.add({"key": "d", "value": 4})
"""
HOLDS = """
import sys
from pathlib import Path
from agents.runs.journal import Journal

journal = Journal(Path(sys.argv[1]))
journal.add({"key": "a"})
journal.drop(["a"])
print("held", flush=True)
sys.stdin.read()
"""


def _python(text: str, path: Path, **pipes: Any) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", text, str(path)], cwd=ROOT, text=True, **pipes)


def test_a_journal_that_ships_packed_is_read_by_its_name_and_goes_on(tmp_path: Path) -> None:
    path, other = tmp_path / "rows.jsonl", tmp_path / "others.jsonl"
    for each in (path, other):
        each.write_text('{"key": "a"}\n{"key": "b"}\n')
    text = path.read_bytes()
    assert ship.main([str(path), str(other)]) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["others.jsonl.gz", "rows.jsonl.gz"]
    assert gzip.decompress((tmp_path / "rows.jsonl.gz").read_bytes()) == text
    assert (tmp_path / "rows.jsonl.gz").read_bytes() == (tmp_path / "others.jsonl.gz").read_bytes()
    assert read_rows(path) == [{"key": "a"}, {"key": "b"}]
    path.touch()  # by a process that was ended before it unpacked
    with Journal(path) as journal:
        assert list(journal.rows) == ["a", "b"]
        journal.add({"key": "c"})
    append_row(other, {"key": "c"})
    assert path.read_bytes() == other.read_bytes() == text + b'{"key": "c"}\n'
    assert [row["key"] for row in read_rows(path)] == ["a", "b", "c"]
    assert ship.main([str(tmp_path / "none.jsonl")]) == ship.main([str(tmp_path / "rows.jsonl.gz")]) == 2


def test_long_journals_ship_packed() -> None:
    plain = {path.relative_to(ROOT): path.stat().st_size for path in (ROOT / "results").rglob("*.jsonl")}
    assert len(plain) > 10 and [path for path, size in plain.items() if size > ship.MOST_PLAIN] == []


def test_kill_9_in_the_middle_of_a_line_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    assert _python(KILLED, path).wait(60) == -signal.SIGKILL
    assert path.read_bytes().endswith(b'3}\n{"key": "d",')
    assert [row["key"] for row in read_rows(path)] == ["a", "b", "c"]
    with Journal(path) as journal:
        assert {key: row["value"] for key, row in journal.rows.items()} == {"a": 1, "b": 2, "c": 3}
        journal.add({"key": "d", "value": 5})
    assert [json.loads(line)["value"] for line in path.read_text().splitlines()] == [1, 2, 3, 5]


def test_a_second_writer_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    """Also where the first has replaced the file since it began; reading is free."""
    path = tmp_path / "rows.jsonl"
    other = _python(HOLDS, path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match=f"another process is writing to {path}; wait for it or name another folder"):
        Journal(path)
    assert read_rows(path) == []
    other.kill()
    other.wait()
    Journal(path).add({"key": "b"})
    assert read_rows(path) == [{"key": "b"}]


def test_rows_have_names(tmp_path: Path) -> None:
    """By fields, of which the last row counts, or by their places; a row without a field, or with infinity, writes nothing."""
    path = tmp_path / "rows.jsonl"
    with Journal(path, ("job", "trial"), finite=True) as journal:
        journal.add({"job": "x", "trial": 0, "s": 1.0}, {"job": "x", "trial": 1, "s": 2.0}, {"job": "x", "trial": 0, "s": 3.0})
        assert [row["s"] for row in journal] == [3.0, 2.0] and journal.rows["x", 1]["s"] == 2.0
        with pytest.raises(ValueError, match=r"rows.jsonl: a row without trial: \{'job': 'y'\}"):
            journal.add({"job": "y", "trial": 0}, {"job": "y"})
        with pytest.raises(ValueError, match="Out of range float"):
            journal.add({"job": "y", "trial": 0, "s": float("inf")})
        journal.drop([("x", 0)])
    assert read_rows(path) == [{"job": "x", "trial": 1, "s": 2.0}]
    with Journal(path, ()) as places:
        places.add({"at": path})
        assert list(places.rows) == [0, 1] and read_rows(path)[1] == {"at": str(path)}
        places.drop([0])
        places.add({"at": 2})
        assert [row["at"] for row in read_rows(path)] == [str(path), 2] and list(places.rows) == [0, 1]
    with pytest.raises(ValueError, match="a row without key"):
        Journal(path)


def test_what_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    """As files are that an editor wrote; and a line that an older journal ended in its middle is passed over."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key": "a"}\n{"key": "hal\n{"key": "b"}')
    with Journal(path) as journal:
        assert list(journal.rows) == ["a", "b"]
        journal.add({"key": "c"})
    assert path.read_text() == '{"key": "a"}\n{"key": "hal\n{"key": "b"}\n{"key": "c"}\n'


def test_a_full_disk_leaves_no_half_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    journal = Journal(path)
    journal.add({"key": "a"})
    whole = journal._file

    class Full:
        seek, truncate = whole.seek, whole.truncate

        def write(self, text: memoryview) -> int:
            if len(text) > 4:
                return whole.write(text[:4]) or 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal._file = Full()  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space left on device: .*rows.jsonl"):
        journal.add({"key": "longer"})
    journal._file = whole
    journal.add({"key": "b"})
    assert list(journal.rows) == ["a", "b"] and read_rows(path) == [{"key": "a"}, {"key": "b"}]


def test_threads_add_to_one_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "rows.jsonl")
    threads = [
        threading.Thread(target=lambda at=at: [journal.add({"key": f"{at} {i}", "text": "x" * 9999}) for i in range(20)])  # type: ignore
        for at in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {row["key"] for row in read_rows(journal.path)} == set(journal.rows) and len(journal.rows) == 80


def test_a_file_is_whole_or_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "card.json"
    whole(path, lambda temporary: temporary.write_text("first"))

    def broken(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        whole(path, broken)
    assert path.read_text() == "first" and list(path.parent.iterdir()) == [path]


pytest.importorskip("sb3_contrib")


GEMM = "gemm(m=64, n=64, k=64)"
COMMANDS = {
    "compare": [f"operator={GEMM}", "backend=analytic", "hardware=h200", "strategy=random_walk", "wandb.mode=disabled"],
    "train": ["agent=columns", "env.hardware=h200", "wandb.mode=disabled"],
    "fine_tune": [
        "env.hardware=cascade_lake", "env.backend=analytic", "checkpoint=agents/data/policies/columns_cpu",
        "store={here}/s.sqlite",
    ],
    "tune": ["tune=markov"],
    "record": [f"operator={GEMM}", "space=compact", "machine=mine"],
    "study": ["experiment=recorded"],
    "generalise": ["evaluations=4096"],
    "bench": ["suite=env"],
}  # fmt: skip
LINES = {"tune": "markov.scores.jsonl", "bench": "env.jsonl"}
"""What these hold; the others hold the folder."""


@pytest.mark.parametrize("name", thorough_but(COMMANDS, "train", "bench"))
def test_the_second_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (out := tmp_path / "out").mkdir()
    words = [word.replace("{here}", str(tmp_path)) for word in COMMANDS[name]]
    monkeypatch.setattr(sys, "argv", ["gensor", name, *words, f"output={out}"])
    monkeypatch.setenv(QUIET, "1")
    with Journal(out / LINES[name], ()) if name in LINES else locked(out):
        before = {path: path.read_bytes() for path in out.rglob("*.jsonl")}
        with pytest.raises(SystemExit) as ended:
            entry.main()
        assert {path: path.read_bytes() for path in out.rglob("*.jsonl")} == before
    (line,) = capfd.readouterr().err.splitlines()
    assert ended.value.code == 2 and line.startswith(f"another process is writing to {out}"), line
    assert "wait for it or name another folder with output=" in line
