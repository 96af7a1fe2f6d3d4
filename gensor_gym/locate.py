"""Paths of shipped data: a path relative to the repository also works in an installed package, from any working directory."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""Folder that contains the packages."""
_MOVED = {
    "results/policies": "agents/data/policies",
    "results/certificates": "gensor_gym/data/certificates",
    "results/spaces": "gensor_gym/data/spaces",
    "results/tune": "experiments/data/tuned",
}
"""Published path -> present path of data that moved."""


def located(path: str | os.PathLike[str]) -> Path:
    """The path itself if it exists, else the shipped file or folder with this path if there is one, else the path itself."""
    here, text = Path(path), Path(path).as_posix()
    for old, new in _MOVED.items():
        if text == old or text.startswith(f"{old}/"):
            text = new + text.removeprefix(old)
    return here if here.exists() or not (ROOT / text).exists() else ROOT / text
