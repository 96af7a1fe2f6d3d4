"""Distribute compiled work over worker threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import CodeType
from typing import Any

import numpy as np

from gensor_gym.hardware.cpuinfo import forced_threads

_done: set[CodeType | None] = set()
"""Code objects of the functions `work` that this process has run before, and that are therefore compiled."""


def shared_out(work: Callable[[slice], Any], count: int) -> list[Any]:
    """Run `work` on even parts of range(count), one worker thread per part; return the results in order.

    Compiled work releases the GIL. If the work is new to the process, the calling thread does the first part, in which Numba
    compiles for up to half a minute. A signal can stop the run there, because the calling thread does not wait for another
    thread.
    """
    edges = np.linspace(0, count, min(workers(), count) + 1).astype(int)
    parts = [slice(low, high) for low, high in zip(edges[:-1], edges[1:], strict=True)]
    code = getattr(work, "__code__", None)
    first = [] if code in _done else [work(parts.pop(0))]
    _done.add(code)
    if not parts:
        return first
    with ThreadPoolExecutor(len(parts)) as pool:
        return [*first, *pool.map(work, parts)]


def workers() -> int:
    """Return the number of worker threads: GENSOR_GYM_THREADS if set, else the number of usable cores.

    ValueError for an invalid setting.
    """
    return forced_threads() or len(os.sched_getaffinity(0))
