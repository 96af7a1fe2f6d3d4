"""One timing at a time on a device: workers of different runs wait for one another and do not disturb each other."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def timing_lock(device: str = "") -> Iterator[None]:
    """Hold the timing lock of a device, by default the processor (a lock on a file, released when the process dies)."""
    path = Path(tempfile.gettempdir()) / f"gensor_gym-timing-{os.getuid()}{device}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
