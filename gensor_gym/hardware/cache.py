"""Where gensor_gym keeps files between runs, and small JSON files there that survive crashes and parallel writers."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from gensor_gym import foreign

VARIABLE = "GENSOR_GYM_CACHE"
PRIVATE = 0o700
"""Mode of folders and libraries that processes of this user load from."""
_OTHERS_WRITE = 0o022


def cache_dir() -> Path:
    """$GENSOR_GYM_CACHE, or ~/.cache/gensor_gym. It may not exist yet; ValueError where the variable names a file."""
    forced = os.environ.get(VARIABLE, "").strip()
    if not forced:
        return Path.home() / ".cache" / "gensor_gym"
    folder = Path(forced).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"${VARIABLE}={forced} is a file: expected a folder, which is made where there is none")
    return folder


def make_cache_dir(name: str) -> Path:
    """The folder `name` in `cache_dir()`, for this user alone, made where there is none; ValueError names what cannot be made.

    Where it belongs to another user it stays as it is: ask `is_private` before anything in it is run.
    """
    folder = cache_dir() / name
    try:
        cache_dir().mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        folder.mkdir(mode=PRIVATE, exist_ok=True)
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(PRIVATE)
    except OSError as error:
        raise ValueError(f"cannot make {folder}: {error}; set ${VARIABLE} to a folder that can be written") from error
    return folder


def is_private(path: Path) -> bool:
    """Whether a file or folder, or what it links to, is this user's and none other may write to it."""
    try:
        known = path.stat()
    except OSError:
        return False
    return known.st_uid == os.geteuid() and not known.st_mode & _OTHERS_WRITE


def is_own(path: Path) -> bool:
    """Whether a file is this user's alone to write, and so is its folder: nothing else is loaded into a process, or believed."""
    return not path.is_symlink() and is_private(path) and is_private(path.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None when the file is missing or does not hold one."""
    try:
        return foreign.read_json(path)
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file so that a reader sees all of it or none; warns when the folder cannot be written."""
    try:
        path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
        os.replace(name, path)
    except OSError as error:
        warnings.warn(f"cannot keep {path}: {error}; set ${VARIABLE} to a folder that can be written", stacklevel=2)
