"""Folders that results are written to."""

from __future__ import annotations

import tempfile
from pathlib import Path


def make_folder(path: str | Path) -> Path:
    """Make a folder if it is missing, check that it is writable, and return it; ValueError if either fails."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"folder {folder} cannot be written: {error.strerror}; name another one") from error
    return folder
