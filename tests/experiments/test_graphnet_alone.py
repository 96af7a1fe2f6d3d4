"""While one graph times calls, the others' processes are stopped; they go on when it is killed, and end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from experiments.benches.graphnet.alone import resume

CHILD = """
import subprocess, sys, time
from pathlib import Path
from experiments.benches.graphnet.alone import alone, end_with_parent
end_with_parent()
folder, name = Path(sys.argv[1]), sys.argv[2]
if name == "busy":  # with a worker in a session of its own
    worker = [sys.executable, "-c", "import time; time.sleep(60)"]
    (folder / "worker").write_text(str(subprocess.Popen(worker, start_new_session=True).pid))
(folder / name).write_text("began")
if name == "busy":
    while True:
        time.sleep(0.01)
with alone(folder / "turn"):
    (folder / name).write_text("alone")
    while not (folder / "enough").exists():
        time.sleep(0.01)
(folder / name).write_text("done")
time.sleep(60)
"""
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2], "busy"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true, at most 20 s."""
    ends = time.monotonic() + 20
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def state(process: int) -> str:
    """Return the state of a process as in /proc: S sleeps, T is stopped, X has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


def child(folder: Path, name: str) -> subprocess.Popen[bytes]:
    """Start a process and wait until it has begun."""
    made = subprocess.Popen([sys.executable, "-c", CHILD, str(folder), name], start_new_session=True)
    until((folder / name).exists)
    return made


def test_others_are_stopped_and_go_on_in_the_end_or_if_the_timing_is_killed(tmp_path: Path) -> None:
    busy = child(tmp_path, "busy")
    worker = int((tmp_path / "worker").read_text())
    first = child(tmp_path, "first")
    second = None
    try:
        until(lambda: state(busy.pid) == state(worker) == "T" and (tmp_path / "first").read_text() == "alone")
        second = child(tmp_path, "second")  # waits for its turn
        resume(tmp_path / "turn")
        assert state(busy.pid) == "T" and (tmp_path / "second").read_text() == "began"
        first.kill()
        first.wait()
        until(lambda: (tmp_path / "second").read_text() == "alone" and state(busy.pid) == "T")
        second.kill()
        second.wait()
        assert state(busy.pid) == "T"
        resume(tmp_path / "turn")
        until(lambda: state(busy.pid) in "SR" and state(worker) in "SR")
        (tmp_path / "enough").touch()
        third = second = child(tmp_path, "third")
        until(lambda: (tmp_path / "third").read_text() == "done" and state(busy.pid) in "SR")
        assert third.poll() is None
    finally:
        os.kill(worker, signal.SIGKILL)
        for one in filter(None, (busy, first, second)):
            one.kill()
            one.wait()


def test_a_stopped_process_ends_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        until((tmp_path / "busy").exists)
        os.killpg(process, signal.SIGSTOP)
        parent.kill()
    until(lambda: state(process) in "XZ")
