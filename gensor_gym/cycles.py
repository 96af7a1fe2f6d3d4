"""Switch Python's garbage collector off while many long-lived objects are made, because each collection visits all of them."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Run the `with` block without garbage collection in the whole process; restore the setting afterwards."""
    with _set(False):
        yield


@contextlib.contextmanager
def collected() -> Iterator[None]:
    """Run the `with` block with garbage collection, for long calls inside `uncollected`."""
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
