"""When Python searches memory for cycles: not while many objects are made that stay, each search of which goes through all."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without a search; it comes after. The process's other threads do without one, too."""
    with _set(False):
        yield


@contextlib.contextmanager
def collected() -> Iterator[None]:
    """With searches also within `uncollected`: for what takes long."""
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
