"""The archive that travelled, unpacked once on a machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

from experiments.device.archive.build import FOLDER
from experiments.device.archive.packed import Archive


def open_archive(folder: Path = FOLDER / "carry") -> Archive:
    """Unpack it; ValueError if there is none."""
    return Archive(folder, Path(tempfile.mkdtemp(prefix="gensor-gym-kernels-")))
