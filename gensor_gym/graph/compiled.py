"""Decorators that compile functions with Numba, and cache them on disk by all sources that they depend on.

Numba keys a cached function by the time stamp of its own file alone, but compiles constants and functions of other modules into
it: after a change of `tables.py` it would use stale offsets. Here every state of the sources has a cache folder of its own. The
sources are all modules of `graph` and `cost`, and all other modules that import these decorators. Constants of a compiled
function must be in one of these modules. Without a writable folder nothing is cached.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np

from gensor_gym.cache.folders import cache_dir
from gensor_gym.cache.owned import made_own
from gensor_gym.cache.sources import files_of
from gensor_gym.graph.compiling.notice import watch
from gensor_gym.graph.compiling.parts import Early, entry, is_tried, part
from gensor_gym.graph.compiling.units import unit

_PACKAGE = Path(__file__).resolve().parent.parent
_KEPT_SECONDS = 7 * 24 * 3600.0

F = TypeVar("F", bound=Callable[..., Any])

watch()


def compiled(function: F) -> F:
    """Compile a function in Numba's nopython mode (decorator).

    The function releases the GIL. It is cached on disk for the current state of the sources.
    """
    return _compile(function, entry)


def early(function: F) -> F:
    """Compile a function like `compiled`, but run it interpreted until another process has compiled it (decorator).

    For functions that Python calls one at a time and whose first calls should not wait, such as the step of one environment.
    """
    return _compile(function, entry, Early)


def outlined(function: F) -> F:
    """Compile a function like `lean`, but only once: compiled callers call one shared copy (decorator).

    For long functions with many callers, such as the cost model and the action mask. Numba would copy them into each caller.
    """
    return _compile(function, unit, _nrt=False, error_model="numpy")


def lean(function: F) -> F:
    """Compile a function that only compiled functions call (decorator).

    The function makes no arrays and counts no references. Counting references (atomic additions at every call) took most of the
    time of the CPU model, and half of the time of a mask. There are no zero-division checks, and the function must not raise.
    """
    options = {"_nrt": False, "error_model": "numpy"}
    made: F = part(function, lambda text: _compile(text, entry, **options), nogil=True, **options)
    return made


def plain(rows: np.ndarray) -> np.ndarray:
    """Return `rows`, or a copy if the array is read-only (like the row of a `Schedule`) or not contiguous.

    Numba gives such arrays another type, and would compile rules and model a second time.
    """
    return rows if rows.flags.carray else rows.copy()


def _compile(function: F, made_by: Callable[..., Any], *kind: type, **options: Any) -> F:
    """Compile a function with `made_by`, and cache it on disk. If Numba is off, return the function unchanged.

    `made_by` is a function of `graph.compiling`, which relies on internals of Numba. With a release of Numba that was not tried,
    `numba.njit` replaces it.
    """
    settings: Any = numba.config
    if settings.DISABLE_JIT:
        return function
    tried = is_tried(numba.__version__)
    made = made_by(function, *kind, nogil=True, **options) if tried else numba.njit(function, nogil=True, **options)
    folder = _folder(_package_of(function))
    if folder is not None:
        before = settings.CACHE_DIR
        settings.CACHE_DIR = str(folder)
        try:
            made.enable_caching()
        finally:
            settings.CACHE_DIR = before
    return cast(F, made)


def _package_of(function: Callable[..., Any]) -> Path:
    """Return the folder of the top-level package that defines the function."""
    file = Path(function.__code__.co_filename).resolve()
    return file.parents[len(function.__module__.split(".")) - 2] if "." in function.__module__ else file.parent


@cache
def _folder(package: Path) -> Path | None:
    """Return the cache folder for the current sources of gensor_gym and of `package`; None if no folder is writable.

    Folders unused for a week are removed.
    """
    text = hashlib.sha256()
    for path, source in (each for root in sorted({_PACKAGE, package}) for each in files_of(root).items()):
        *folders, name = path.split(os.sep)
        if not name.endswith(".py"):
            continue
        if {"graph", "cost"} & {*folders[-2:]} or name == "occupancy.py" or b"graph.compiled import" in source:
            text.update(name.encode() + b"\0" + source + b"\0")
    for base in _bases():
        folder = base / "numba" / text.hexdigest()[:16]
        if _is_writable(folder):
            _remove_unused(folder.parent)
            return folder
    return None


def _bases() -> Iterator[Path]:
    """Yield candidate cache folders, best first: only $NUMBA_CACHE_DIR if set; else one next to the sources, then the user's."""
    forced = os.environ.get("NUMBA_CACHE_DIR")
    if forced:
        yield Path(forced)
        return
    yield _PACKAGE / "__pycache__"
    yield cache_dir()


def _is_writable(folder: Path) -> bool:
    """Return whether a cache folder can be used. Create it if it is missing, and update its time of last use.

    False also if other users can write to the folder, because compiled functions are loaded from it.
    """
    try:
        if not made_own(folder):
            return False
        with tempfile.TemporaryFile(dir=folder):
            os.utime(folder)
    except OSError:
        return False
    return True


def _remove_unused(base: Path) -> None:
    limit = time.time() - _KEPT_SECONDS
    for old in base.glob("*"):
        if old.stat().st_mtime < limit:
            shutil.rmtree(old, ignore_errors=True)
