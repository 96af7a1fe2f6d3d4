"""Where gensor_gym keeps files between runs, and small JSON files there that survive crashes and parallel writers."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

VARIABLE = "GENSOR_GYM_CACHE"


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
    """The folder `name` in `cache_dir()`, made where there is none; ValueError names what cannot be made."""
    folder = cache_dir() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make {folder}: {error}; set ${VARIABLE} to a folder that can be written") from error
    return folder


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None when the file is missing or does not hold one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file so that a reader sees all of it or none; warns when the folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
        os.replace(name, path)
    except OSError as error:
        warnings.warn(f"cannot keep {path}: {error}; set ${VARIABLE} to a folder that can be written", stacklevel=2)
