"""Actions of `Write-v0` that write a known program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.env.writing.decisions import SIZE, WHOLE, Decision
from gensor_gym.graph.coordinates import CHAIN
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_LEVELS, TILE, VTHREAD


def actions_of(decisions: Sequence[Decision], row: np.ndarray) -> list[int]:
    """Return the actions that write a known program: for each decision the index of the option to take.

    `row` int32 [ROW] is the program, with a tile for every memory level. ValueError if a decision has no such option: the program
    is not in the space.
    """
    found: list[int] = []
    for place, decision in enumerate(decisions):
        wanted = _numbers(decision, row)
        options = decision.options if decision.kind == WHOLE else decision.options[:, :1]
        (matching,) = np.nonzero((options == wanted).all(axis=1))
        if not len(matching):
            raise ValueError(f"decision {place} has no option {wanted.tolist()}: expected a program of the space")
        found.append(int(matching[0]))
    return found


def _numbers(decision: Decision, row: np.ndarray) -> np.ndarray:
    """Return the numbers of a program that a decision sets: the tiles and virtual threads of an axis, or a single number."""
    if decision.kind == WHOLE:
        tiles = [decision.first + level * MAX_AXES for level in range(MAX_LEVELS)]
        chain = row[[*tiles, decision.first + VTHREAD - TILE]]
        assert len(chain) == CHAIN
        return chain
    return row[[decision.first + (decision.level * MAX_AXES if decision.kind == SIZE else 0)]]
