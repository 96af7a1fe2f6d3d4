"""The strategy of a machine that `gensor adapt` has measured: programs by the model of time that it learned there."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from agents.core.adapted import FILE, adapted_folder, check_adapted
from agents.hybrids.corrected import Corrected
from agents.hybrids.correction import load_correction
from gensor_gym.hardware.types import Hardware


@dataclass(frozen=True)
class Adapted(Corrected):
    """`corrected` with this machine's correction, with the walks and descents of the study of learned models of time.

    FileNotFoundError on a machine that `gensor adapt` has not measured.
    """

    walkers: int = 12
    refined: int = 4

    def folder(self) -> str:
        """Folder of the correction named `correction`, by default this machine's."""
        return self.correction or str(check_adapted())

    @staticmethod
    def is_ready(hardware: Hardware) -> bool:
        """Whether the machine is this one, and `gensor adapt` has learned a correction of it by the present rules and model.

        RuntimeWarning if the correction cannot be read, or is older than the rules or the model.
        """
        if hardware.name != "host" or not (adapted_folder() / FILE).is_file():
            return False
        try:
            load_correction(str(adapted_folder()))
        except (ImportError, OSError, ValueError) as error:
            warnings.warn(f"searches begin without what was learned of this machine: {error} (gensor adapt)", RuntimeWarning, 2)
            return False
        return True
