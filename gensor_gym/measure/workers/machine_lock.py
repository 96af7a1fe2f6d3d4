"""One timing at a time on a device: workers of different runs wait for one another and do not disturb each other."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def lock_path(device: str = "") -> Path:
    """The file whose lock is the timing lock of a device, by default the processor; for programs of other systems as well."""
    return Path(tempfile.gettempdir()) / f"gensor_gym-timing-{os.getuid()}{device}.lock"


@contextmanager
def timing_lock(device: str = "") -> Iterator[None]:
    """Hold the timing lock of a device, by default the processor (a lock on a file, released when the process dies)."""
    with lock_path(device).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
