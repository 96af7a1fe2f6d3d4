"""Small JSON files in the cache that survive crashes and parallel writers."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from gensor_gym import foreign
from gensor_gym.cache.folders import VARIABLE
from gensor_gym.cache.owned import PRIVATE, is_private
from gensor_gym.files import write_whole


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if the file is missing or does not contain an object."""
    try:
        return foreign.read_json(path)
    except (OSError, ValueError):
        return None


def read_kept(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, like `read_json`. If others can write the file, warn and return None."""
    if path.exists() and not is_private(path):
        text = f"{path} belongs to another user or can be written by others: it is not believed"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
        return None
    return read_json(path)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file atomically. Warn if it cannot be written."""
    try:
        path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        write_whole(path, json.dumps(value, indent=2).encode(), 0o600)
    except OSError as error:
        warnings.warn(f"cannot keep {path}: {error}; set ${VARIABLE} to a folder that can be written", stacklevel=2)
