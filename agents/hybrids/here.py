"""Results of `gensor adapt` on this machine: their folder, and whether they fit a search."""

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

MACHINE = "hardware.json"
"""File of the measured machine in the folder of `gensor adapt`."""


def measured_here(hw: Hardware) -> bool:
    """Whether `gensor adapt` has measured this machine with the number of threads of `hw`.

    RuntimeWarning if the results do not load, for example after a change of the model.
    """
    folder = adapted_folder()
    if hw.name != "host" or not (folder / FILE).is_file():
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
    """Folder of this machine's recording and correction in the user's cache. It depends on the cores and the layout of rows."""
    info = cpu_info()
    text = repr((LAYOUT_VERSION, info.model, info.cores, info.arch, sorted(info.flags)))
    return cache_dir() / "adapted" / hashlib.sha256(text.encode()).hexdigest()[:16]
