"""Warnings of cores that other programs use: on a machine that is made up, and here beside a busy process."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from gensor_gym.measure.stats import others
from gensor_gym.measure.stats.others import warned_of_others


def machine(folder: Path, busy: int, own: int, child: int, ended: int = 0) -> None:
    """Files of Linux with these ticks: of all processors, of process 7, and of its child 8 with a child that has ended."""
    (folder / "stat").write_text(f"cpu  {busy} 0 0 999 0 0 0 0 0 0\ncpu0 0\n")
    for pid, ticks, waited, children in ((7, own, 0, "8 9 "), (8, child, ended, "")):
        (folder / str(pid) / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        (folder / str(pid) / "stat").write_text(f"{pid} (a name) of) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 {waited} 0 20 0\n")
        (folder / str(pid) / "task" / str(pid) / "children").write_text(children)


@pytest.fixture(autouse=True)
def as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests are not told of one another (conftest.py)."""
    monkeypatch.setattr(others, "CORES", 0.3)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of four cores on which ten seconds pass at each look."""
    seconds = iter(range(0, 1000, 10))
    monkeypatch.setattr(others, "PROC", tmp_path)
    monkeypatch.setattr(others, "_ticks", lambda: 100)
    monkeypatch.setattr(others.os, "getpid", lambda: 7)
    monkeypatch.setattr(others.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(others.time, "monotonic", lambda: float(next(seconds)))
    machine(tmp_path, 1000, 100, 50)
    return tmp_path


@pytest.mark.parametrize(
    "busy, own, child, ended, threads, told",
    [
        (3000, 600, 550, 0, 4, "1.0 of 4 cores"), (3000, 600, 550, 0, 3, ""), (3000, 600, 550, 0, 2, ""),
        (2200, 600, 550, 0, 4, ""), (4000, 100, 50, 0, 2, "3.0 of 4 cores"), (4000, 1100, 1050, 0, 4, "1.0 of 4 cores"),
        (3000, 100, 50, 1900, 4, ""), (3000, 100, 50, 900, 4, "1.1 of 4 cores"),
    ],
)  # fmt: skip
def test_cores_of_others_are_told_where_kernels_need_them(
    made_up: Path, busy: int, own: int, child: int, ended: int, threads: int, told: str
) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with warned_of_others(threads):
            machine(made_up, busy, own, child, ended)
    assert [str(one.message) for one in said if told not in str(one.message)] == [] and len(said) == bool(told)


def test_what_linux_does_not_say_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "PROC", tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with warned_of_others(1000):
            pass


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="processor time is read from /proc")
def test_a_busy_process_beside_is_seen_and_a_child_counts_as_own() -> None:
    busy = [sys.executable, "-c", "import time; end = time.time() + 4\nwhile time.time() < end: pass"]
    own = subprocess.Popen(busy)
    begin = others._counted()
    time.sleep(1.5)
    end = others._counted()
    own.wait()
    assert begin and end and end[2] - begin[2] > 0.5
    subprocess.run(["setsid", "--fork", *busy], check=True)
    with pytest.warns(RuntimeWarning, match="other programs used"), warned_of_others(others.os.cpu_count() or 1):
        time.sleep(1.5)
