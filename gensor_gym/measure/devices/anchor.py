"""The drift anchor: one fixed kernel that a worker times every few trials, to record the machine's drift."""

from __future__ import annotations

import ctypes
import functools
import statistics
import time
from pathlib import Path

import numpy as np

from gensor_gym.codegen.runtime.compile import compile_text
from gensor_gym.codegen.runtime.threads import ARCH, runtime, time_calls
from gensor_gym.measure.devices.buffers import GuardedBuffer
from gensor_gym.measure.stats.timing import Timer, TimingRules, calls_per_sample, sample, warm_up

_SIZE = 48
_SAMPLES = 5


class Anchor:
    """Times a fixed kernel (the drift anchor) again after every `TimingRules.anchor_every` trials."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self._trials = 0
        self._seconds: float | None = None
        self._when = 0.0

    def refresh(self, rules: TimingRules) -> None:
        """Count one trial. Time the drift anchor (a fixed kernel) again if enough trials have passed.

        Call it only while nothing else is timed.
        """
        if self._seconds is None or self._trials >= rules.anchor_every:
            calls = calls_per_sample(warm_up(self.timer, rules), rules)
            self._seconds = statistics.median(sample(self.timer, calls) for _ in range(_SAMPLES))
            self._when, self._trials = time.time(), 0
        self._trials += 1

    def conditions(self) -> dict[str, object]:
        """Return the drift anchor's last timing: `anchor_seconds` per call, and `anchor_at` in seconds since 1970.

        Empty before the first timing.
        """
        return {} if self._seconds is None else {"anchor_seconds": self._seconds, "anchor_at": self._when}


def anchor_text() -> str:
    """Return the C source of the drift anchor, the fixed kernel that shows how the machine's speed changes."""
    return Path(__file__).with_name("anchor.c").read_text("utf-8")


@functools.cache
def cpu_anchor() -> Timer:
    """Return a function that times the drift anchor on one CPU thread. The first call on a machine compiles it."""
    library = ctypes.CDLL(str(compile_text(anchor_text(), ARCH)))
    # Buffers like a kernel's: the address of a NumPy array would differ from process to process.
    buffers = [GuardedBuffer((_SIZE, _SIZE), np.float32) for _ in range(3)]
    a, b, output = (buffer.array for buffer in buffers)
    for number, array in enumerate((a, b)):
        array[...] = np.random.default_rng(number).standard_normal((_SIZE, _SIZE))
    workspace = np.zeros(1, np.uint8)
    runtime(1)  # starts the runtime before the first timing
    return lambda calls: time_calls(library.gg_anchor, (a, b), output, workspace, 1, calls)
