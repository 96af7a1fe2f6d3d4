"""Time calls of kernels as users make them: from Python in this process, on inputs placed in memory like NumPy arrays."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from gensor_gym.codegen.runtime.memory import aligned

SETTLE = 40e-3
"""Smallest number of seconds of uncounted calls before the counted ones."""
TURN = 20e-3
"""Approximate number of seconds of the counted calls; there is at least one call."""


def placed(array: np.ndarray, offset: int) -> np.ndarray:
    """Copy an array to memory that begins `offset` bytes past a cache line."""
    copy = aligned((offset + array.nbytes,), np.dtype(np.uint8))[offset:].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def seconds(call: Callable[[], object]) -> float:
    """Return the mean seconds of a call over about 20 ms (`TURN`), after uncounted calls for 40 ms (`SETTLE`)."""
    begin, settled = time.perf_counter(), 0
    while settled == 0 or time.perf_counter() - begin < SETTLE:
        call()
        settled += 1
    calls = max(1, int(TURN * settled / (time.perf_counter() - begin)))
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls
