"""Compiled work shared out over worker threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import CodeType
from typing import Any

import numpy as np

from gensor_gym.hardware.cpuinfo import forced_threads

_done: set[CodeType | None] = set()
"""Work that was done before in this process."""


def shared_out(work: Callable[[slice], Any], count: int) -> list[Any]:
    """Results of `work` on even parts of range(count), one worker a part; compiled work does not hold the GIL.

    When the work is new to the process, the calling thread does the first part: Numba compiles there for up to half a minute, and
    a signal that stops the run is not blocked by another thread.
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
    """Worker threads: GENSOR_GYM_THREADS or the usable cores; ValueError if it is no number of them."""
    return forced_threads() or len(os.sched_getaffinity(0))
