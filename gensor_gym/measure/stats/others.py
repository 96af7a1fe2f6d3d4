"""Cores that other programs use while kernels are timed, from Linux's counters of processor time."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 1.0
"""Seconds of the shortest search that warns of other programs, because processor time is counted in hundredths of a second."""
CORES = 0.3
"""Number of cores that other programs may use, in addition to those that kernels leave idle, before a search warns."""
PROC = Path("/proc")


class OtherCores:
    """Measures how many cores other programs use, from this object's creation on. It needs Linux's counters in /proc."""

    def __init__(self) -> None:
        self._begin = _counted()

    def used(self) -> tuple[float, float] | None:
        """Return (seconds since creation, number of cores that other programs used on average); None without counters."""
        begin, end = self._begin, _counted()
        if begin is None or end is None:
            return None
        wall = end[0] - begin[0]
        return wall, ((end[1] - begin[1]) - (end[2] - begin[2])) / max(wall, 1e-9)


@contextmanager
def warned_of_others(threads: int) -> Iterator[None]:
    """Warn at the end of the context (RuntimeWarning) if other programs used cores that kernels with `threads` threads need."""
    counted = OtherCores()
    yield
    used, cores = counted.used(), os.cpu_count() or 1
    if used is None or used[0] < SECONDS:
        return
    if used[1] > max(0, cores - threads) + CORES:
        said = f"other programs used {used[1]:.1f} of {cores} cores while kernels of {threads} threads were timed"
        warnings.warn(f"{said}: times may be too long", RuntimeWarning, stacklevel=4)


def _counted() -> tuple[float, float, float] | None:
    """Read the clock and Linux's counters. Return three numbers of seconds, or None if they cannot be read.

    They are the clock's time, the busy time of all processors, and the processor time of this process with its children.
    """
    try:
        words = (PROC / "stat").read_text().partition("\n")[0].split()
        busy = sum(int(words[place]) for place in (1, 2, 3, 6, 7))  # user, nice, system, interrupts
        return time.monotonic(), busy / _ticks(), _own(str(os.getpid())) / _ticks()
    except (OSError, ValueError, IndexError):
        return None


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK")


def _own(pid: str) -> int:
    """Return the clock ticks used by a process, its ended children and its running children."""
    fields = (PROC / pid / "stat").read_text().rpartition(")")[2].split()
    found = sum(map(int, fields[11:15]))
    for task in (PROC / pid / "task").iterdir():
        for child in (task / "children").read_text().split():
            try:
                found += _own(child)
            except FileNotFoundError:  # the child ended meanwhile
                continue
    return found
