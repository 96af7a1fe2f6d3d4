"""One timing at a time on a machine: workers of different runs wait for one another and do not disturb each other."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def timing_lock() -> Iterator[None]:
    """Hold the machine's timing lock (a lock on a file, released by the system when the process dies)."""
    path = Path(tempfile.gettempdir()) / f"gensor_gym-timing-{os.getuid()}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
