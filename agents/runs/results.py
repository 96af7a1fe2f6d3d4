"""Writing files of results, each as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from gensor_gym.files import write_whole


def write_text(path: Path, text: str) -> None:
    """Write a text file as a whole."""
    write_whole(path, text.encode())


def write_summary(folder: Path, summary: Mapping[str, object], page: str) -> None:
    """Write a study's results: summary.json, and its page summary.md."""
    write_text(folder / "summary.json", json.dumps(summary, indent=1, default=str))
    write_text(folder / "summary.md", page)
