"""The archive that was carried to this machine, unpacked once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from experiments.device.archive.build import FOLDER
from experiments.device.archive.packed import Archive


def open_archive(folder: Path = FOLDER / "carry") -> Archive:
    """Unpack the archive in a folder into a temporary folder; ValueError if there is none."""
    return Archive(folder, Path(tempfile.mkdtemp(prefix="gensor-gym-kernels-")))
