"""Paths of shipped data: the path in the repository is the path in an installation as well, from any folder."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder that the packages lie in."""
_MOVED = {
    "results/policies": "agents/data/policies",
    "results/certificates": "gensor_gym/data/certificates",
    "results/spaces": "gensor_gym/data/spaces",
    "results/tune": "experiments/data/tuned",
    "results/best_known.json": "experiments/data/best_known.json",
}
"""Published paths, and their present locations."""


def located(path: str | os.PathLike[str]) -> Path:
    """The file or folder of a path from here; if missing, the shipped one with that path, if there is one."""
    here, text = Path(path), Path(path).as_posix()
    for old, new in _MOVED.items():
        if text == old or text.startswith(f"{old}/"):
            text = new + text.removeprefix(old)
    return here if here.exists() or not (ROOT / text).exists() else ROOT / text
