"""Let processes with the same parent time calls one after the other, while its other processes are stopped."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PARENT_DEATH = 1
"""PR_SET_PDEATHSIG of linux/prctl.h: the signal that this process gets when its parent ends."""


def end_with_parent() -> None:
    """Let the system kill this process when its parent ends; a stopped process would stay forever."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)


@contextlib.contextmanager
def alone(turn: Path) -> Iterator[None]:
    """Wait for the lock of the file `turn`, then stop all other descendants of the parent until the block ends.

    If this process is killed meanwhile, the parent calls `resume`.
    """
    with turn.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        others = _descendants(_children(os.getppid()) - {os.getpid()})
        try:
            _send(others, signal.SIGSTOP)
            yield
        finally:
            _send(others, signal.SIGCONT)


def resume(turn: Path) -> None:
    """Let all descendants of this process continue, unless one of its children is timing calls."""
    with turn.open("w") as file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_NB | fcntl.LOCK_EX)
        _send(_descendants(_children(os.getpid())), signal.SIGCONT)


def _children(parent: int) -> set[int]:
    """Return the processes that the threads of a process started and that have not ended."""
    try:
        threads = list(Path(f"/proc/{parent}/task").iterdir())
        return {int(one) for thread in threads for one in (thread / "children").read_text(encoding="utf-8").split()}
    except (FileNotFoundError, ProcessLookupError):  # a process or thread that has ended
        return set()


def _descendants(processes: set[int]) -> list[int]:
    """Return processes and what they started, parents first: a stopped process starts no others."""
    found = sorted(processes)
    for one in found:
        found += sorted(_children(one))
    return found


def _send(processes: list[int], number: int) -> None:
    for one in processes:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.kill(one, number)
