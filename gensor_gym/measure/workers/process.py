"""The parent's side of a worker process: start it, send requests with deadlines, kill and replace it.

The parent process, which runs the search, is called the harness.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import warnings
import weakref
from contextlib import suppress
from typing import IO, Any

from gensor_gym.measure.measurement import Status
from gensor_gym.measure.workers.deadlines import STAGE_SECONDS
from gensor_gym.measure.workers.replies import decoded, text
from gensor_gym.measure.workers.start import Start, start_of
from gensor_gym.measure.workers.wire import BadReply, DeadlinePassed, PipeClosed, receive_reply, send_request


class WorkerLost(Exception):
    """The worker crashed, or was killed because it did not answer in time. `status` is CRASHED or TIMEOUT."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status

    def __reduce__(self) -> tuple[type[WorkerLost], tuple[Status, str]]:
        """Return status and text, from which pickle rebuilds the exception, so that it can come from another machine."""
        return type(self), (self.status, str(self))


class WorkerProcess:
    """One worker process, started at its first use and replaced after a loss or after `restart_after` requests.

    It can be used from any thread, one request at a time. After a fork the child starts a worker of its own.
    """

    def __init__(
        self,
        device: str,
        restart_after: int = 300,
        stage_seconds: dict[str, float] | None = None,
        shut_in: bool | None = None,
        memory: int = 0,
    ) -> None:
        """Choose how the worker will be started, without starting it.

        `device` is a name in `devices/opened.py`, or `start.COMPILER`. `stage_seconds` replaces the deadlines of some stages.
        `shut_in` isolates workers that run kernels' machine code; None leaves the choice to $GENSOR_GYM_ISOLATION. Isolated
        workers may allocate `memory` bytes (0: any number).
        """
        unknown = set(stage_seconds or {}) - set(STAGE_SECONDS)
        if unknown:
            raise ValueError(f"no stage {sorted(unknown)}; stages are {sorted(STAGE_SECONDS)}")
        self._device, self._shut_in, self._memory = device, shut_in, memory
        self._restart_after = restart_after
        self._seconds = {**STAGE_SECONDS, **(stage_seconds or {})}
        self._live: _Live | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Return the process id of the running worker; None if no worker runs."""
        return self._live.process.pid if self._live is not None else None

    def ask(self, request: object) -> Any:
        """Send a request and return the worker's answer. WorkerLost if the worker dies or hangs, RuntimeError if it raises."""
        with self._lock:
            live = self._running()
            live.requests += 1
            value = self._exchange(live, request)
            if live.requests >= self._restart_after:
                self.close()
            return value

    def _exchange(self, live: _Live, request: object) -> Any:
        """Send a request, read the worker's messages until its answer, and return the answer. Any error ends the worker.

        Each message about a stage of the request starts the deadline of that stage.
        """
        stage = "start" if live.requests == 1 else "load"
        try:
            send_request(live.write_fd, live.start.enclosed(request))
            while True:
                kind, value = receive_reply(live.read_fd, time.monotonic() + self._seconds[stage])
                if kind == "answer":
                    return decoded(request, value)
                if kind == "error":
                    raise RuntimeError(f"worker failed in stage {stage}: {_last_first(text(value))}")
                if kind == "warning":
                    warnings.warn(text(value), RuntimeWarning, stacklevel=3)
                elif kind == "stage" and text(value) in self._seconds:
                    stage = value
                else:
                    raise BadReply(f"{kind[:20]!r} of {str(value)[:20]!r} is no reply")
        except DeadlinePassed:
            self.close()
            said = f"no progress within {self._seconds[stage]:g} s in stage {stage}; worker killed"
            raise WorkerLost(Status.TIMEOUT, said) from None
        except BadReply as error:
            self.close()
            said = f"worker sent no answer in stage {stage}, and was killed: {error}"
            raise WorkerLost(Status.CRASHED, said) from None
        except PipeClosed:
            hint = live.start.hint if stage == "start" else ""
            raise WorkerLost(Status.CRASHED, f"worker died in stage {stage}: {self._autopsy(live)}{hint}") from None
        except BaseException:
            self.close()  # an answer may still arrive (Ctrl-C), so the pipe cannot be used again
            raise

    def begin(self) -> None:
        """Start the worker now, which takes a second, so that the first request does not wait."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the worker. The next request starts another."""
        if self._live is not None and self._live.owner == os.getpid():
            self._live.finalizer()
        self._live = None

    def kill(self) -> None:
        """Kill the worker, from any thread. A request in progress raises WorkerLost; the next request starts another worker."""
        live = self._live
        if live is not None and live.owner == os.getpid() and live.process.poll() is None:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(live.process.pid, signal.SIGKILL)

    def _running(self) -> _Live:
        """Return the running worker.

        A new worker is started if there is none, or if it belongs to the process that forked this one.
        """
        if self._live is None or self._live.owner != os.getpid():
            self._live = _Live(self._device, self._shut_in, self._memory)
        return self._live

    def _autopsy(self, live: _Live) -> str:
        try:
            code = live.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            code = None
        tail = live.stderr_tail()
        self.close()
        if code is None:
            return "it closed its pipe and did not exit"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"{how}; {tail}" if tail else how


class _Live:
    """A running worker: process, pipes, and a finalizer that also runs when the interpreter exits."""

    def __init__(self, device: str, shut_in: bool | None, memory: int) -> None:
        self.owner = os.getpid()
        self.requests = 0
        self.start = start_of(device, shut_in, memory)
        child_read, self.write_fd = os.pipe()
        self.read_fd, child_write = os.pipe()
        self._stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*self.start.command, device, str(child_read), str(child_write), str(self.owner), json.dumps(self.start.libraries)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            pass_fds=(child_read, child_write),
            start_new_session=True,
            env=self.start.variables,
        )
        os.close(child_read)
        os.close(child_write)
        fds = (self.read_fd, self.write_fd)
        self.finalizer = weakref.finalize(self, _end, self.process, fds, self._stderr, self.start, self.owner)

    def stderr_tail(self, count: int = 600) -> str:
        """Return the last `count` characters that the worker wrote to standard error."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - count))
        return self._stderr.read().decode(errors="replace").strip()


def _end(process: subprocess.Popen, fds: tuple[int, int], stderr: IO[bytes], start: Start, owner: int) -> None:
    """Kill the worker's process group, wait for its end, and close its pipes. Do nothing in a forked copy of its parent.

    The parent is the process `owner`, which started the worker.
    """
    if os.getpid() != owner:
        return
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # a generated kernel may ignore other signals
        except ProcessLookupError:
            process.kill()
        process.wait()
    for fd in fds:
        os.close(fd)
    stderr.close()
    if start.scratch is not None:
        shutil.rmtree(start.scratch, ignore_errors=True)


def _last_first(trace: str) -> str:
    """Return a traceback with its last line, which has the error, repeated at the top."""
    return "\n".join([*trace.strip().splitlines()[-1:], trace])
