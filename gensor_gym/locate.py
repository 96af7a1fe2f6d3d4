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
"""Path at which data were published -> path at which they are now."""


def located(path: str | os.PathLike[str]) -> Path:
    """Find a shipped file or folder. Return the path itself if it exists, else the shipped path of this name if there is one.

    If neither exists, the path itself is returned.
    """
    here, text = Path(path), Path(path).as_posix()
    for old, new in _MOVED.items():
        if text == old or text.startswith(f"{old}/"):
            text = new + text.removeprefix(old)
    return here if here.exists() or not (ROOT / text).exists() else ROOT / text
