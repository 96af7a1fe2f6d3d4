"""Compiled work shared out over worker threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np


def shared_out(work: Callable[[slice], Any], count: int) -> list[Any]:
    """Results of `work` on even parts of range(count), one worker a part; compiled work does not hold the GIL."""
    edges = np.linspace(0, count, min(workers(), count) + 1).astype(int)
    parts = [slice(low, high) for low, high in zip(edges[:-1], edges[1:], strict=True)]
    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(work, parts))


def workers() -> int:
    """Worker threads: GENSOR_GYM_THREADS or the usable cores."""
    return int(os.environ.get("GENSOR_GYM_THREADS", 0)) or len(os.sched_getaffinity(0))
