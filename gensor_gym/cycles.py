"""Control of Python's garbage collector: off while many long-lived objects are created, because each collection visits all."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection, which runs afterwards. This affects all threads of the process."""
    with _set(False):
        yield


@contextlib.contextmanager
def collected() -> Iterator[None]:
    """With garbage collection even inside `uncollected`: for long calls."""
    with _set(True):
        yield


@contextlib.contextmanager
def _set(wanted: bool) -> Iterator[None]:
    was = gc.isenabled()
    (gc.enable if wanted else gc.disable)()
    try:
        yield
    finally:
        (gc.enable if was else gc.disable)()
