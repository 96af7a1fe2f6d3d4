"""Folders for files that are kept between runs: the user's cache or, if others can write to it, a folder of the process."""

from __future__ import annotations

import atexit
import errno
import functools
import os
import shutil
import stat
import tempfile
import warnings
from pathlib import Path

from gensor_gym.cache.owned import PRIVATE, is_own_folder

VARIABLE = "GENSOR_GYM_CACHE"


def cache_dir() -> Path:
    """Return the folder of the user's cache: $GENSOR_GYM_CACHE, else ~/.cache/gensor_gym.

    Without a writable home it is a folder in the temporary folder. The folder may not exist yet. ValueError if the variable names
    a file.
    """
    forced = os.environ.get(VARIABLE, "").strip()
    if not forced:
        usual = home / ".cache" / "gensor_gym" if (home := home_folder()) else None
        return usual if usual and can_be_made(usual) else _temporary()
    folder = Path(forced).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"${VARIABLE}={forced} is a file: expected a folder, which is made where there is none")
    return folder


def can_be_made(folder: Path) -> bool:
    """Return whether a folder exists and is writable, or can be created."""
    place = next(str(path) for path in (folder, *folder.parents) if os.path.exists(path))
    return os.access(place, os.W_OK | os.X_OK)


def _temporary() -> Path:
    """Return this user's folder in the temporary folder; a folder of this process if another user has taken the name."""
    folder = Path(tempfile.gettempdir()) / f"gensor_gym-{os.geteuid()}"
    return folder if not os.path.lexists(folder) or is_own_folder(folder) else _own_folder("cache")


def home_folder() -> Path | None:
    """Return the user's home; None if neither $HOME nor the system's list of users names one, as in some containers."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home if home.is_absolute() else None


def make_cache_dir(name: str) -> Path:
    """Return the folder `name` in the user's cache, created if missing, to which only this user has access.

    ValueError names a folder that cannot be created or written. Permissions of another user's folder and of $GENSOR_GYM_CACHE
    itself do not change. Code belongs in a `private_dir`.
    """
    base, folder = cache_dir(), cache_dir() / name
    try:
        for each in (base, folder):
            each.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            known = each.stat()
            named = each == base and os.environ.get(VARIABLE, "").strip()
            if known.st_uid == os.geteuid() and stat.S_IMODE(known.st_mode) != PRIVATE and not named:
                each.chmod(PRIVATE)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it cannot be written", str(folder))
    except OSError as error:
        raise ValueError(f"cannot make {folder}: {error}; set ${VARIABLE} to a folder that can be written") from error
    return folder


def private_dir(name: str) -> Path:
    """Return a folder in the cache for loadable code. If others can write to it, warn and return a folder of this process."""
    folder = make_cache_dir(name)
    if is_own_folder(folder, cache_dir()):
        return folder
    warnings.warn(
        f"{folder} belongs to another user or can be written by others, or a folder above it: this process compiles into a "
        f"folder of its own; set ${VARIABLE} to a folder that is yours alone to write", RuntimeWarning, stacklevel=4,
    )  # fmt: skip
    return _own_folder(name)


@functools.cache
def _own_folder(name: str) -> Path:
    """Return a temporary folder of this process, deleted when the process ends."""
    folder = tempfile.mkdtemp(prefix=f"gensor-gym-{name}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
