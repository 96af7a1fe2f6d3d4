"""Qualities among which users choose how long the kernels of a network are searched."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.gensor.markov import Markov
from agents.optimizer import Asked
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.operators.types import Operator
from gensor_gym.registry import check_known

QUALITIES = {"fast": 1, "balanced": 3, "best": 16}
"""Quality -> largest number of programs tried for each piece.

With `fast` the model chooses; its program is verified and not timed.
"""
FAST, DEFAULT = "fast", "balanced"
LOSSES = {"balanced": 0.05}
"""Quality -> largest share of a network's seconds that it could lose because some pieces have one program tried; else 0.

These are the pieces that take the fewest seconds beyond their roofline floors (`agents.pieces.promising`).
"""
MOST_TRIALS = 64
"""Maximum number of programs that are measured for each piece with a budget in seconds."""
QUICK = {"walkers": 16, "refiners": 10, "descents": 12, "columns": 3}
"""Hyperparameters of the traverser if only the model chooses.

Walks need a third of the processor time with them, and the chosen programs of ResNet-50, MobileNetV2 and BERT are 0.6 % faster by
the model (64 pieces, at most 25 % slower, AMD EPYC Zen 4).
"""


@dataclass(frozen=True)
class Effort:
    """Effort of a network's search: the maximum number of programs tried for each piece, and whether they are timed."""

    trials: int
    timed: bool
    loss: float = 0.0
    """Largest share of the network's seconds that may be lost because some pieces have one program tried (`LOSSES`)."""

    @classmethod
    def of(cls, quality: str | None, trials: int | None, seconds: float) -> Effort:
        """Return the effort of a quality, or of exactly `trials` programs.

        A budget in seconds without a quality allows 64 programs (`MOST_TRIALS`). ValueError for an unknown quality, and unless
        `trials` is None or a whole number above 0.
        """
        if quality is not None:
            check_known("quality", quality, QUALITIES)
        if trials is not None:
            if not isinstance(trials, int) or trials < 1:
                raise ValueError(f"trials={trials!r}: expected a whole number, 1 or more")
            return cls(trials, True)
        if math.isfinite(seconds):
            return cls(MOST_TRIALS if quality is None else QUALITIES[quality], True)
        return cls(QUALITIES[quality or DEFAULT], quality != FAST, LOSSES.get(quality or DEFAULT, 0.0))

    def searches(self, asked: Mapping[Operator | Dataflow, Asked]) -> dict[Operator | Dataflow, Asked]:
        """Adapt the searches of a network's pieces to the effort.

        If programs are not timed, the default traverser gets a shorter walk.
        """
        short = {} if self.timed else {one: search for one, search in asked.items() if search.search == Markov()}
        quick: Any = Markov(**QUICK)  # type: ignore[arg-type]
        return {**asked, **{one: dataclasses.replace(search, search=quick) for one, search in short.items()}}
