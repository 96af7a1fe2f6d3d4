"""Where the correction that `gensor adapt` learned of this machine is kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gensor_gym.cache.folders import cache_dir
from gensor_gym.graph.tables.layout import LAYOUT_VERSION
from gensor_gym.hardware.cpuinfo import cpu_info

FILE = "correction.json.gz"
"""File of a correction, written last."""


def adapted_folder() -> Path:
    """Folder of this machine's recording and correction in the user's cache; each number of cores has its own.

    So has each layout of programs: what is in a folder can be read.
    """
    info = cpu_info()
    text = repr((LAYOUT_VERSION, info.model, info.cores, info.arch, sorted(info.flags)))
    return cache_dir() / "adapted" / hashlib.sha256(text.encode()).hexdigest()[:16]


def check_adapted() -> Path:
    """`adapted_folder` of a machine on which `gensor adapt` has ended; FileNotFoundError on others."""
    if not ((folder := adapted_folder()) / FILE).is_file():
        raise FileNotFoundError(f"this machine has no learned correction in {folder}; measure it for ten minutes: gensor adapt")
    return folder
