"""Notice on standard error that appears when compiling takes long.

Compiled code is cached, so the notice appears once for each state of the sources; a terminal also shows progress. Worker
processes print nothing, and $GENSOR_GYM_QUIET silences the notice.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from numba.core import event

QUIET = "GENSOR_GYM_QUIET"
"""Environment variable that silences the notice if it is not empty."""
PATIENCE_S = 2.0
"""Seconds of compiling after which the notice appears."""
_OURS = ("gensor_gym", "agents", "experiments")
_COMPILING = "numba:compile"


class Notice(event.Listener):  # type: ignore[misc]
    """Prints one line on standard error when Numba has compiled for long. Numba calls it for every function it compiles.

    It prints nothing if `silent()` returns True by then.
    """

    def __init__(self, out: Callable[[], TextIO], clock: Callable[[], float], silent: Callable[[], bool]) -> None:
        """Make a notice with no seconds counted yet.

        `out` returns the stream to print to, `clock` the time in seconds, and `silent` whether to print nothing.
        """
        self._out, self._clock, self._silent = out, clock, silent
        self._depth, self._functions = 0, 0
        self._seconds, self._begin = 0.0, 0.0
        self._said = False

    def on_start(self, event: event.Event) -> None:
        """Start the clock when an outermost function begins to compile. Functions that it calls are compiled within its time."""
        if self._depth > 0 or _is_ours(event):
            if self._depth == 0:
                self._begin = self._clock()
            self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """Count a compiled function, and print the notice if compiling has taken more than `PATIENCE_S` seconds in all."""
        if self._depth == 0:
            return
        self._depth -= 1
        self._functions += 1
        seconds = self._seconds + self._clock() - self._begin
        if self._depth == 0:
            self._seconds = seconds
        if seconds > PATIENCE_S and not self._silent():
            self._say(self._out(), seconds)

    def lasts(self, seconds: float) -> None:
        """Print the notice if another process has been compiling for more than `PATIENCE_S` seconds.

        Meanwhile this process waits or runs interpreted.
        """
        if seconds > PATIENCE_S and not self._silent():
            self._say_once(self._out())

    def _say_once(self, out: TextIO) -> None:
        if not self._said:
            self._said = True
            out.write("gensor_gym: compiling, once; it is kept for the next time\n")
            out.flush()

    def _say(self, out: TextIO, seconds: float) -> None:
        """Print the notice; on a terminal, also print how many functions are compiled, and for how long."""
        self._say_once(out)
        if out.isatty():
            out.write(f"\r{self._functions} functions, {seconds:.0f} s\x1b[K" if self._depth > 0 else "\r\x1b[K")
        out.flush()


def _is_ours(event: event.Event) -> bool:
    module: str | None = event.data["dispatcher"].py_func.__module__  # None for a function made from its text
    return module is not None and module.partition(".")[0] in _OURS


def _is_silent() -> bool:
    """Whether the notice stays away: in workers, with $GENSOR_GYM_QUIET, and without standard error."""
    return bool(os.environ.get(QUIET)) or multiprocessing.parent_process() is not None or sys.stderr is None


NOTICE = Notice(lambda: sys.stderr, time.monotonic, _is_silent)
"""The notice of the running process."""


def watch() -> None:
    """Make the object `NOTICE` listen to all of Numba's compilations in this process from now on."""
    event.register(_COMPILING, NOTICE)
