"""The strategy of a machine that `gensor adapt` has measured: programs by the model of time that it learned there."""

from __future__ import annotations

from dataclasses import dataclass

from agents.core.adapted import check_adapted
from agents.hybrids.corrected import Corrected


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
