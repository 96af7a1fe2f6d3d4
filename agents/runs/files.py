"""Write files and folders of results. Every file is written as a whole or not at all."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gensor_gym.files import write_whole


def make_folder(path: str | Path) -> Path:
    """Make a folder if it is missing, check that it is writable, and return it. ValueError if either fails."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"folder {folder} cannot be written: {error.strerror}; name another one") from error
    return folder


def write_text(path: Path, text: str) -> None:
    """Write a text file as a whole."""
    write_whole(path, text.encode())


def write_summary(folder: Path, summary: Mapping[str, object], page: str) -> None:
    """Write a study's results: summary.json, and the page summary.md."""
    write_text(folder / "summary.json", json.dumps(summary, indent=1, default=str))
    write_text(folder / "summary.md", page)
