"""The harness's side of the process that calls a source (`caller.py`): start it, time bursts of calls, copy memory, end it.

The process runs only while a burst is timed. `burst` reads the clock, continues the process, and reads the clock again when the
system reports that all threads of the process are stopped. So the kernel sees no input before the first reading, and changes no
output after the second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from gensor_gym.codegen.runtime.threads import runtime_library
from gensor_gym.foreign.jsons import parse_object
from gensor_gym.measure.isolation import launch, seccomp
from gensor_gym.measure.isolation.environment import passed_on
from gensor_gym.measure.isolation.readable import WRITTEN, readable
from gensor_gym.measure.measurement import Status
from gensor_gym.measure.workers.deadlines import STAGE_SECONDS
from gensor_gym.measure.workers.process import WorkerLost
from gensor_gym.measure.workers.requests import Built
from gensor_gym.measure.workers.start import wanted
from gensor_gym.measure.workers.trial import LaunchError
from gensor_gym.measure.written import caller
from gensor_gym.measure.written.layout import GUARD, HUGE_PAGE, TABLE, Layout, guarded, table_of
from gensor_gym.measure.written.memory import MemoryRefused, copy

_HAND_OVERS = 201
"""Number of bursts without calls whose median is the time of a hand-over. Other programs delay several in a row by milliseconds:
of twelve medians of 25 bursts, one was 187 us instead of 10 us (three busy programs on two cores, Intel Xeon, virtual).
"""
_WATCH_SECONDS = 0.25
_ENDED = os.WSTOPPED | os.WEXITED | os.WNOWAIT
_LIBRARY = "kernel.so"


class Controlled:
    """A stopped process with a kernel's buffers, its `layout`. WorkerLost from any method if the process ends or hangs."""

    def __init__(self, built: Built, layout: Layout, threads: int, cpus: Collection[int], folder: Path, memory: int) -> None:
        """Start the process, without loading the kernel. Its threads use the processors `cpus`.

        `folder` is a new folder; `memory` is the limit of the process's allocations.
        """
        self.layout = layout
        (folder / _LIBRARY).write_bytes(built.library)
        given = {
            "bytes": layout.bytes, "closed": layout.closed, "huge": layout.huge, "table": TABLE, "slots": layout.slots,
            "runtime": str(runtime_library()), "threads": threads, "cpus": sorted(cpus),
            "seccomp": seccomp.__file__ if wanted() else "", "library": str(folder / _LIBRARY),
            "aligned": HUGE_PAGE, "entry": built.kernel.launches[0].entry,
        }  # fmt: skip
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            _command(folder, memory), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, cwd=folder,
            env=passed_on(os.environ), start_new_session=True,
        )  # fmt: skip
        self._late, self._closed = False, threading.Event()
        self.enter("start")
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            said = self._first_report(json.dumps(given).encode())
            self.base, self.isolation = int(said["base"]), str(said["isolation"])
            self._prepare(int(said["runtime"]))
            self.hand_over = float(np.median([self.burst(0) for _ in range(_HAND_OVERS)]))
            """Seconds of a burst without calls, measured before the process has loaded the kernel."""
        except BaseException:
            self.close()
            raise

    def enter(self, stage: str) -> None:
        """Begin a stage of `STAGE_SECONDS`. The process is killed if all that is done in the stage takes longer."""
        self.stage, self._deadline = stage, time.monotonic() + STAGE_SECONDS[stage]

    def load(self) -> None:
        """Let the process load the kernel's library. LaunchError if it cannot."""
        self.enter("load")
        try:
            self.put(np.array([0, 1], np.int64), 0)
            self.burst(0)
        except WorkerLost as lost:
            if self._process.poll() == caller.NOT_LOADED and self._process.stdout is not None:
                raise LaunchError(self._process.stdout.read(1 << 12).decode(errors="replace").strip()) from lost
            raise

    def burst(self, calls: int) -> float:
        """Let the process call the kernel in the first `calls` slots. Return the seconds until all its threads are stopped."""
        self.put(np.array([calls], np.int64), 0)
        start = time.perf_counter()
        os.kill(self._process.pid, signal.SIGCONT)
        found = os.waitid(os.P_PID, self._process.pid, _ENDED)
        seconds = time.perf_counter() - start
        if found is None or found.si_code != os.CLD_STOPPED:
            raise self._lost()
        return seconds

    def put(self, array: np.ndarray, place: int) -> None:
        """Copy a contiguous array to a place in the process's memory."""
        self.copy(True, np.array([[array.ctypes.data, array.nbytes]], np.uint64), np.array([[place, array.nbytes]], np.uint64))

    def copy(self, write: bool, here: np.ndarray, places: np.ndarray) -> None:
        """Copy between this process and places in the stopped one, uint64 [parts, 2] as in `memory.copy`."""
        there = places.copy()
        there[:, 0] += np.uint64(self.base)
        try:
            copy(self._process.pid, write, here, there)
        except MemoryRefused as error:
            if error.ended:
                raise self._lost() from None
            hint = "a process must be able to access its child's memory (kernel.yama.ptrace_scope 0 or 1)"
            raise WorkerLost(Status.CRASHED, f"{error}: {hint}") from None

    def close(self) -> None:
        """End the process."""
        self._closed.set()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._stderr):
            if file is not None:
                file.close()

    def _first_report(self, given: bytes) -> dict[str, Any]:
        """Send the settings, and wait until the process has reported and stopped."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(given)
        self._process.stdin.close()
        line = self._process.stdout.readline()
        found = os.waitid(os.P_PID, self._process.pid, _ENDED)
        if not line or found is None or found.si_code != os.CLD_STOPPED:
            raise self._lost()
        return parse_object(line.decode())

    def _prepare(self, runtime: int) -> None:
        """Write the table of calls, the guard words and the workspace's first content."""
        self.put(table_of(self.layout, self.base, runtime), TABLE)
        flat = [region for slot in (*self.layout.inputs, *self.layout.outputs) for region in slot]
        places = guarded([self.layout.workspace, *flat])
        words = np.full(int(places[:, 1].max()), GUARD, np.uint8)
        here = places.copy()
        here[:, 0] = words.ctypes.data
        self.copy(True, here, places)
        self.put(np.full(self.layout.workspace.nbytes, 0xFF, np.uint8), self.layout.workspace.place)

    def _watch(self) -> None:
        """Kill the process if it passes a deadline. The caller of `burst` cannot, because it waits for the process."""
        while not self._closed.wait(_WATCH_SECONDS):
            if time.monotonic() > self._deadline:
                self._late = True
                self._process.kill()
                return

    def _lost(self) -> WorkerLost:
        """Return the error that says how the process ended."""
        code = self._process.wait()
        if self._late:
            said = f"no progress within {STAGE_SECONDS[self.stage]:g} s in stage {self.stage}; worker killed"
            return WorkerLost(Status.TIMEOUT, said)
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 600))
        tail = self._stderr.read().decode(errors="replace").strip()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return WorkerLost(Status.CRASHED, f"worker died in stage {self.stage}: {how}{'; ' if tail else ''}{tail}")


def _command(folder: Path, memory: int) -> list[str]:
    """Return the command that starts the process, isolated if that is wanted. The folder gets the file of its rules."""
    script, python = str(Path(caller.__file__).resolve()), [sys.executable, "-I", "-S"]
    if not wanted():
        return [*python, script]
    own = [script, str(Path(seccomp.__file__).resolve()), str(runtime_library()), str(folder)]
    rules = {"readable": [*readable(), *own], "writable": [*WRITTEN], "memory": memory, "script": script}
    (folder / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    return [*python, str(Path(launch.__file__).resolve()), str(folder / "rules.json")]
