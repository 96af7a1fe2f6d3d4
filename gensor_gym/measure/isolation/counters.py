"""Counters of the processor (Linux's perf events) for this process and the threads that it will start.

They are opened before a worker gives up its rights, because a worker may not open any later. `launch.py` imports this file alone,
so it imports only the standard library. Counting needs no right where `kernel.perf_event_paranoid` is 2 or less; many virtual
machines and containers have no counters.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

VARIABLE = "GENSOR_GYM_COUNTERS"
"""Environment variable that tells a worker its counters, such as `cycles=5 instructions=6`: names and open files."""
EVENTS = {"cycles": (0, 0), "instructions": (0, 1), "cache_misses": (0, 3)}
"""Name -> type PERF_TYPE_HARDWARE and number of an event (linux/perf_event.h). A cache miss is one of the last level."""
_CALL = {"x86_64": 298, "aarch64": 241}
_BYTES, _TIMES, _INHERIT, _NO_KERNEL, _CLOSED_BY_EXEC = 112, 1 | 2, 1 << 1, 1 << 5 | 1 << 6, 8
"""Size of `struct perf_event_attr` (its version 5), formats that add enabled and running times, and flags of the struct."""
_READING = struct.Struct("@QQQ")


def opened() -> str:
    """Open the counters that this process may have; return the text of `VARIABLE`, empty without any."""
    number = _CALL.get(platform.machine())
    if number is None or sys.platform != "linux":
        return ""
    libc, found = ctypes.CDLL(None), []
    for name, (kind, event) in EVENTS.items():
        attributes = struct.pack("@IIQQQQQ", kind, _BYTES, event, 0, 0, _TIMES, _INHERIT | _NO_KERNEL).ljust(_BYTES, b"\0")
        file = libc.syscall(number, attributes, 0, -1, -1, ctypes.c_ulong(_CLOSED_BY_EXEC))
        found += [f"{name}={file}"] if file >= 0 else []
    return " ".join(found)


class Counters:
    """Reads counters that `opened` has opened."""

    def __init__(self, text: str) -> None:
        self._files = {name: int(file) for name, _, file in (part.partition("=") for part in text.split())}

    def read(self) -> dict[str, float]:
        """Return the count of every event so far, by name. An event that was counted for a part of the time is scaled up.

        An event that cannot be read, or was never counted, is missing.
        """
        counts: dict[str, float] = {}
        for name, file in self._files.items():
            try:
                count, enabled, running = _READING.unpack(os.read(file, _READING.size))
            except (OSError, struct.error):
                continue
            if running:
                counts[name] = count * enabled / running
        return counts
