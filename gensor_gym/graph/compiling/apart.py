"""Client of the compile server, a second process that compiles functions to disk; the client's process loads them from there.

The server starts with the first request, ends when idle for a while, and never outlives its client. Worker processes compile
functions themselves, because each would start a server; so does a process without a cache on disk.
"""

from __future__ import annotations

import atexit
import base64
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from typing import Any

from gensor_gym.graph.compiling.notice import NOTICE, QUIET

MODULE = "gensor_gym.graph.compiling.apart_process"
"""Module that the process of the compile server runs."""

Asked = tuple[str, str, tuple[Any, ...]]
"""Type of a request: module and name of a function, and the types of its arguments."""


class Apart:
    """Client of the compile server, a second process that runs while compilations are pending."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._awaited: list[Asked] = []
        self._over: set[Asked] = set()
        self._broken = False
        self._begin = 0.0
        self._lock = threading.Lock()

    def compiles(self, function: Any, types: tuple[Any, ...]) -> bool:
        """Return whether the server is compiling a function for these argument types. The first call asks it to.

        The result is False if the compiled function is on disk, if it will not be stored there, or if no server can run.
        """
        asked = (function.py_func.__module__, function.py_func.__qualname__, types)
        with self._lock:
            if asked in self._awaited:
                NOTICE.lasts(time.monotonic() - self._begin)
                self._listen()
            elif asked not in self._over:
                if function.keeps and not function.is_kept(types) and self._can_be():
                    self._ask(asked)
                else:
                    self._over.add(asked)
            return asked in self._awaited

    def _can_be(self) -> bool:
        """Return whether a server can be started: not after a failure, and not in a worker process."""
        return not self._broken and multiprocessing.parent_process() is None

    def _ask(self, asked: Asked) -> None:
        if self._process is not None and self._process.poll() is not None:
            self._ended()
        self._awaited.append(asked)
        try:
            if self._process is None:
                self._process, self._begin = _started(), time.monotonic()
            self._process.stdin.write(base64.b64encode(pickle.dumps(asked)) + b"\n")  # type: ignore[union-attr]
        except OSError:  # the server cannot be started, or has just ended
            self._broken = self._process is None
            self._ended()

    def _listen(self) -> None:
        """Record which functions the server has finished. The server writes one byte for each, in the order of the requests."""
        done = self._process.stdout.read() if self._process is not None else b""  # type: ignore[union-attr]
        for _ in done or b"":
            self._over.add(self._awaited.pop(0))
        if done == b"":
            self._ended()

    def _ended(self) -> None:
        """Mark all pending functions as no longer awaited, so that this process compiles them. A failed server never restarts."""
        self._over.update(self._awaited)
        self._awaited.clear()
        if self._process is not None:
            self._broken = self._process.wait() != 0
            _close(self._process)
            self._process = None

    def end(self) -> None:
        """End the server process at once."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._ended()

    def forget(self) -> None:
        """Forget the server in a forked child, because it belongs to the parent process."""
        if self._process is not None:
            self._process.returncode = 0
            _close(self._process)
        self.__init__()  # type: ignore[misc]


def _started() -> subprocess.Popen[bytes]:
    """Start the server process. OSError if it cannot start.

    It gets the client's import path and a process group of its own, so that Ctrl-C in a terminal does not reach it.
    """
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE, str(os.getpid())],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0,
        env=os.environ | {"PYTHONPATH": path, QUIET: "1"},
    )  # fmt: skip
    os.set_blocking(process.stdout.fileno(), False)  # type: ignore[union-attr]
    return process


def _close(process: subprocess.Popen[bytes]) -> None:
    for file in (process.stdin, process.stdout):
        if file is not None:
            file.close()


apart = Apart()
atexit.register(apart.end)
os.register_at_fork(after_in_child=apart.forget)
