"""kill -9 of a recording, of its worker and of another writer of the same store, at random moments.

After each the store opens, is sound and has every trial that was acknowledged; the same recording then goes on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gensor_gym.measure.measurement import Status
from gensor_gym.measure.records.backend import passes_of
from gensor_gym.measure.records.store import Selection, Store
from tests.measure.test_measure_store import WRITER

ROOT = Path(__file__).parents[2]
RECORDER = """
import json, sys
from pathlib import Path
from agents.recording.passes import Plan, Recording, backend_of
from gensor_gym import hardware, operators
from gensor_gym.measure.records.store import Store
folder, passes = Path(sys.argv[1]), int(sys.argv[2])
hw = hardware.get("host")
plan = Plan(operators.parse("gemv(m=4, k=8)"), hw, "compact", passes=passes, samples=2)
backend = backend_of(hw, 2)
recording = Recording(plan, Store(folder / "s.sqlite"), backend.device(hw), folder / "anchor.jsonl")
print(json.dumps({"left": recording.left}), flush=True)
recording.run(backend, lambda m: print(json.dumps({"digest": m.digest, "samples": len(m.samples)}), flush=True))
backend.close()
print(json.dumps({"left": recording.left}), flush=True)
"""


class Process:
    """A process of its own group whose whole lines are kept as they come."""

    def __init__(self, script: str, *arguments: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        self.lines += (line.strip() for line in self.popen.stdout if line.endswith("\n"))

    def workers(self) -> list[int]:
        """Worker processes that it started."""
        children = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children")
        pids = [int(pid) for pid in children.read_text().split()] if children.exists() else []
        return [pid for pid in pids if b"isolation/launch.py" in _command(pid)]

    def kill(self) -> None:
        """At once; what it wrote before is read."""
        self.popen.kill()
        self.wait()

    def wait(self) -> None:
        """Until it has ended and was read."""
        self.popen.wait()
        self._reader.join()
        assert self.popen.stdout is not None
        self.popen.stdout.close()


class Acknowledged:
    """What processes said was stored: samples by digest for the recording, digests for the writer."""

    def __init__(self) -> None:
        self.samples: dict[str, int] = {}
        self.written: set[str] = set()

    def note(self, recorder: Process, writer: Process) -> None:
        """Add what both printed."""
        for row in map(json.loads, recorder.lines):
            if "digest" in row:
                self.samples[row["digest"]] = row["samples"]
        self.written |= set(writer.lines)

    def check(self, path: Path) -> None:
        """All of it is in the store."""
        store = Store(path)
        found = {r.measurement.digest: r.measurement for r in store.records(Selection())}
        store.close()
        assert self.written <= set(found)
        short = {d: n for d, n in self.samples.items() if len(found[d].samples) < n}
        assert short == {}, "samples that were acknowledged are gone"
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _command(pid: int) -> bytes:
    """Command line of a process, empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


PATIENCE = 200.0
"""Seconds for both to have stored something; a busy machine takes long to start a process."""


def _disturb(recorder: Process, writer: Process, rng: random.Random, lines: int) -> str:
    """Kill one of the three at a random moment, then, somewhat later, all of them; returns who came first.

    The moment is after the recorder printed so many lines: the first comes before it compiles, the second with its first trial.
    """
    deadline = time.monotonic() + PATIENCE
    while not (len(recorder.lines) >= lines and writer.lines) and time.monotonic() < deadline and recorder.popen.poll() is None:
        time.sleep(0.01)
    time.sleep(rng.uniform(0.0, 1.5))
    first = rng.choice(["recorder", "worker", "writer"])
    if first == "worker":
        for pid in recorder.workers():
            os.kill(pid, signal.SIGKILL)
    elif first == "writer":
        writer.popen.kill()
    else:
        recorder.popen.kill()
    time.sleep(rng.uniform(0.0, 0.5))
    recorder.kill()
    writer.kill()
    return first


def run(folder: Path, repeats: int) -> None:
    """`repeats` kills, then a run that is left in peace."""
    path, rng, known = folder / "s.sqlite", random.Random(repeats), Acknowledged()
    passes = str(repeats + 2)
    for number in range(repeats):
        recorder = Process(RECORDER, str(folder), passes)
        writer = Process(WRITER, str(path), str(number))
        _disturb(recorder, writer, rng, 1 + number % 2)
        known.note(recorder, writer)
        known.check(path)
    assert known.samples and known.written
    last = Process(RECORDER, str(folder), passes)
    last.wait()
    assert last.popen.returncode == 0
    first, *_, end = map(json.loads, last.lines)
    assert end == {"left": 0} and first["left"] < 16 * int(passes)
    records = list(Store(path).records(Selection(operator="gemv(m=4, k=8)")))
    good = [r.measurement for r in records if r.measurement.status is Status.OK]
    whole = [m for m in good if "lost" not in m.conditions]
    assert whole and all(sorted(passes_of(m)) == sorted([*range(1, int(passes) + 1)] * 2) for m in whole)
    assert len(whole) >= len(records) - repeats  # a worker that is killed takes one trial with it


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_few_kills(tmp_path: Path) -> None:
    run(tmp_path, 2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_kills(tmp_path: Path) -> None:
    run(tmp_path, 50)
