"""Copies between arrays of this process and the memory of a child process, by Linux's process_vm_readv and process_vm_writev."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

import numpy as np

_MOST_PARTS = 1024
"""Largest number of parts that one system call copies (IOV_MAX)."""
_libc = ctypes.CDLL(None, use_errno=True)
AVAILABLE = sys.platform == "linux" and hasattr(_libc, "process_vm_writev")
"""Whether this system has the two calls."""


class MemoryRefused(Exception):
    """The system does not let this process copy, the other process has unmapped the memory, or it has ended (`ended`)."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {os.strerror(code)}")
        self.ended = code == errno.ESRCH


def copy(pid: int, write: bool, here: np.ndarray, there: np.ndarray) -> None:
    """Copy parts of memory to process `pid` (`write`) or from it. MemoryRefused if a part is not copied.

    `here` and `there` are uint64 [parts, 2]: address and number of bytes of each part, in this process and in the other.
    """
    call = _libc.process_vm_writev if write else _libc.process_vm_readv
    call.restype = ctypes.c_ssize_t
    for first in range(0, len(here), _MOST_PARTS):
        own = np.ascontiguousarray(here[first : first + _MOST_PARTS])
        far = np.ascontiguousarray(there[first : first + _MOST_PARTS])
        wanted, done = int(own[:, 1].sum()), 0
        while done < wanted:  # one call copies at most 2 GiB
            left = [_after(parts, done) for parts in (own, far)]
            addresses = [(ctypes.c_void_p(part.ctypes.data), ctypes.c_ulong(len(part))) for part in left]
            count = call(pid, *addresses[0], *addresses[1], ctypes.c_ulong(0))
            if count <= 0:
                raise MemoryRefused(call.__name__, ctypes.get_errno())
            done += count


def _after(parts: np.ndarray, done: int) -> np.ndarray:
    """Return the parts without their first `done` bytes."""
    if not done:
        return parts
    ends = np.cumsum(parts[:, 1])
    first = int(np.searchsorted(ends, done, side="right"))
    left = parts[first:].copy()
    skipped = np.uint64(done) - (ends[first - 1] if first else np.uint64(0))
    left[0, 0] += skipped
    left[0, 1] -= skipped
    return left
