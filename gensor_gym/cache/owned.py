"""Ownership of files: cached libraries, functions and JSON files are used only if this user alone can write them."""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from pathlib import Path

PRIVATE = 0o700
"""Permissions of folders and libraries from which processes of this user load code."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_private(path: Path) -> bool:
    """Return whether a file or folder (for a link, the target) belongs to this user and nobody else can write to it."""
    try:
        return _is_private(path.stat())
    except OSError:
        return False


def is_own_folder(folder: Path, base: Path | None = None) -> bool:
    """Return whether this user alone can write a folder and its parents up to `base`.

    False inside a folder in which everybody may replace files. /tmp is no such folder, because it has the sticky bit.
    """
    if not is_private(folder):
        return False
    place, last = folder.resolve(), (base or folder).resolve()
    if last in place.parents and not all(is_private(above) for above in place.parents if above.is_relative_to(last)):
        return False
    try:
        return not any(_is_open(above.stat()) for above in place.parents)
    except OSError:
        return False


def is_own(path: Path, base: Path | None = None) -> bool:
    """Return whether this user alone can write a file and its folder. Other files are neither loaded nor trusted."""
    return not path.is_symlink() and is_private(path) and is_own_folder(path.parent, base)


def read_own(path: Path) -> bytes:
    """Return the content of a file that, like its folder, only this user can write. ValueError with the reason for other files.

    The check is on the opened folder and file, so that nobody can exchange them before the read.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            own = _is_private(os.fstat(folder))
            place = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(place, "rb") as file:
            known = os.fstat(file.fileno())
            if own and _is_private(known) and stat.S_ISREG(known.st_mode):
                return file.read()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    raise ValueError(f"{path} belongs to another user or can be written by others")


def made_own(folder: Path) -> bool:
    """Create a folder for loadable code, with its parents. Return whether this user alone can write to it.

    The parent must be protected too. If both are protected but an entry may come from another user, all entries are removed with
    a warning. If they are not protected, a warning says so and nothing changes. For a folder that this user cannot write to, such
    as the administrator's, the result is False without a warning. OSError if the folder cannot be created.
    """
    folder.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    folder.mkdir(mode=PRIVATE, exist_ok=True)
    if not os.access(folder, os.W_OK):
        return False
    if not (is_private(folder.parent) and is_own_folder(folder)):
        _warn(f"{folder} belongs to another user or can be written by others, or the folder above it: it is not used")
        return False
    entries = (Path(at) / name for at, folders, files in os.walk(folder) for name in [*folders, *files])
    strange = [path for path in entries if _is_strange(path)]
    if strange:
        _warn(f"{strange[0]} ({len(strange)} in all) belongs to another user or can be written by others: all is made anew")
        shutil.rmtree(folder)
        folder.mkdir(mode=PRIVATE)
    return True


def _is_strange(path: Path) -> bool:
    """Return whether an entry of a protected folder is a link, belongs to another user, or is writable by everybody.

    Entries that their group can write to are accepted, because the folder keeps the group out.
    """
    known = path.lstat()
    return stat.S_ISLNK(known.st_mode) or known.st_uid != os.geteuid() or bool(known.st_mode & stat.S_IWOTH)


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)


def _is_private(known: os.stat_result) -> bool:
    return known.st_uid == os.geteuid() and not known.st_mode & _OTHERS_WRITE


def _is_open(known: os.stat_result) -> bool:
    """Return whether everybody may replace files in a folder: all can write to it, and it has no sticky bit."""
    return bool(known.st_mode & stat.S_IWOTH) and not known.st_mode & stat.S_ISVTX
