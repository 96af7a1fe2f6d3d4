"""Greedy search over the construction graph on the analytic model: a beam of one."""

from __future__ import annotations

from dataclasses import dataclass

from agents.baselines.beam import Beam


@dataclass(frozen=True)
class Greedy(Beam):
    """Always to the best neighbour not seen before; ends like `Beam`. What was seen beside the way is ranked as well."""

    width: int = 1
    patience: int = 4
