"""The fingerprint: results compare only where it is the same.

It is a hash of what decides which schedules there are and what the model says of them: the rules, the layout of a row,
the table of knobs, the model and its constants, the machines, the named shapes and their splits, and the decision
process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parent
_PARTS = ("graph/*.py", "cost/*.py", "cost/*.json", "hardware/nvidia.py", "hardware/cpu.py", "hardware/occupancy.py")
_DATA = ("operators/*.py", "operators/shapes/*.json", "env/process.py")


@cache
def fingerprint() -> str:
    """Sixteen hexadecimal digits over the source text of rules, model, machines, shapes and process."""
    return digest_of(_ROOT, (path for pattern in (*_PARTS, *_DATA) for path in _ROOT.glob(pattern)))[:16]


def digest_of(root: Path, files: Iterable[Path]) -> str:
    """SHA-256 over names (relative to `root`) and text of files, in the order of their names, line ends made equal."""
    whole = hashlib.sha256()
    for path in sorted(files):
        text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        whole.update(f"{path.relative_to(root).as_posix()}\0{text}\0".encode())
    return whole.hexdigest()
