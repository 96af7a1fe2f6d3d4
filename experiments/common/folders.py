"""Folders that results are written to."""

from __future__ import annotations

import tempfile
from pathlib import Path


def make_folder(path: str | Path) -> Path:
    """A folder that can be written, made where there is none; ValueError names one that cannot be made or written."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"folder {folder} cannot be written: {error.strerror}; name another one") from error
    return folder
