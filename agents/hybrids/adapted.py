"""The strategy of a machine that `gensor adapt` has measured: programs by the model of time that it learned there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from agents.hybrids.corrected import Corrected
from agents.hybrids.correction import FILE
from gensor_gym.cache.folders import cache_dir
from gensor_gym.graph.tables.layout import LAYOUT_VERSION
from gensor_gym.hardware.cpuinfo import cpu_info


@dataclass(frozen=True)
class Adapted(Corrected):
    """`corrected` with this machine's correction, with the walks and descents of the study of learned models of time.

    FileNotFoundError on a machine that `gensor adapt` has not measured.
    """

    walkers: int = 12
    refined: int = 4

    def folder(self) -> str:
        """Folder of the correction named `correction`, by default this machine's."""
        if self.correction:
            return self.correction
        if not ((folder := adapted_folder()) / FILE).is_file():
            raise FileNotFoundError(f"no correction of this machine in {folder}; measure it for ten minutes: gensor adapt")
        return str(folder)


def adapted_folder() -> Path:
    """Folder of this machine's recording and correction in the user's cache, for this number of cores and layout of programs."""
    info = cpu_info()
    text = repr((LAYOUT_VERSION, info.model, info.cores, info.arch, sorted(info.flags)))
    return cache_dir() / "adapted" / hashlib.sha256(text.encode()).hexdigest()[:16]
