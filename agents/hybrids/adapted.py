"""The strategy for a machine with measured times: a model of time that was learned from them ranks the programs.

The code calls such a model a correction, because it starts from the analytic model (`agents.hybrids.correction`). `gensor adapt`
learns the correction of a CPU. One for H100 and H200 ships: `gensor learn_correction measured=h200` learned it from the train
part of Measured v1.
"""

from __future__ import annotations

from dataclasses import dataclass

from agents.hybrids.corrected import Corrected
from agents.hybrids.correction import FILE
from agents.hybrids.here import adapted_folder
from gensor_gym.construction import ConstructionGraph
from gensor_gym.locate import ROOT

SHIPPED = {"sm_90": ROOT / "agents" / "data" / "corrections" / "h200"}
"""Architecture of a GPU -> folder of a correction that was learned from trials on such a GPU."""


@dataclass(frozen=True)
class Adapted(Corrected):
    """Strategy `corrected` with this machine's correction: a model learned from measured times ranks programs and guides walks.

    The numbers of walks and descents are those of the strategy `learned` in results/cpu_study/README.md. FileNotFoundError for a
    CPU that `gensor adapt` has not measured, and for a GPU without a shipped correction.
    """

    walkers: int = 12
    refined: int = 4

    def folder(self, graph: ConstructionGraph) -> str:
        """Return the folder of the correction: the field `correction` or, if that is empty, the one learned for this machine."""
        if self.correction:
            return self.correction
        hw = graph.hardware
        if hw.kind == "gpu":
            if hw.arch not in SHIPPED:
                raise FileNotFoundError(
                    f"no correction of {hw.name} ({hw.arch}) ships, only of {', '.join(SHIPPED)}; learn one from its times: "
                    "gensor learn_correction"
                )
            return str(SHIPPED[hw.arch])
        if not ((folder := adapted_folder()) / FILE).is_file():
            raise FileNotFoundError(f"no correction of this machine in {folder}; measure it for ten minutes: gensor adapt")
        return str(folder)
