"""Locate the results of `gensor adapt` on this machine, and say whether they fit a search."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

from agents.hybrids.correction import FILE, load_correction
from gensor_gym.cache.folders import cache_dir
from gensor_gym.foreign import read_text
from gensor_gym.graph.tables.layout import LAYOUT_VERSION
from gensor_gym.hardware import from_json
from gensor_gym.hardware.cpuinfo import cpu_info
from gensor_gym.hardware.types import Hardware

FOLDER, MACHINE = "adapted", "hardware.json"
"""Folder of the cache for results of `gensor adapt`, and file name of the measured machine's description there."""


def measured_here(hw: Hardware) -> bool:
    """Return whether `gensor adapt` has measured this machine with the number of threads of `hw`.

    RuntimeWarning if the results do not load, for example after a change of the model.
    """
    if hw.name != "host" or not (cache_dir() / FOLDER).is_dir():  # most machines, whose processor then needs no look
        return False
    folder = adapted_folder()
    if not (folder / FILE).is_file():
        return False
    try:
        if from_json(read_text(folder / MACHINE)).units != hw.units:
            return False
        load_correction(str(folder))
    except (ImportError, OSError, ValueError) as error:
        warnings.warn(f"searches do without the model of time of gensor adapt: {error}", RuntimeWarning, stacklevel=2)
        return False
    return True


def adapted_folder() -> Path:
    """Return the folder in the user's cache with this machine's recorded times and correction.

    The folder depends on the processor's cores and on the layout of encoded programs.
    """
    info = cpu_info()
    text = repr((LAYOUT_VERSION, info.model, info.cores, info.arch, sorted(info.flags)))
    return cache_dir() / FOLDER / hashlib.sha256(text.encode()).hexdigest()[:16]
