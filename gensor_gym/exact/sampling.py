"""Programs drawn evenly from a space that is too large to enumerate."""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.enumeration import axis_choices, knob_choices, moved_knobs
from gensor_gym.graph.layout import KNOB, LEVEL, MAX_AXES, TILE
from gensor_gym.graph.tables import NUM_LEVELS

BATCH = 65536


def sample_evenly(graph: ConstructionGraph, rng: np.random.Generator, candidates: int) -> np.ndarray:
    """Legal ones, int32 [<= candidates, ROW], among `candidates` combinations of which each is as likely as any other.

    So a legal schedule with all levels opened is as likely as any other, too.
    """
    if candidates < 1:
        raise ValueError(f"candidates is {candidates!r}: expected one or more")
    ints = graph.tables.ints
    choices, knobs = axis_choices(ints, graph.tables.sizes), knob_choices(ints)
    found = []
    for begin in range(0, candidates, BATCH):
        rows = np.repeat(graph.initial().row[None], min(BATCH, candidates - begin), axis=0)
        rows[:, LEVEL] = ints[NUM_LEVELS] - 1
        for axis, chains in enumerate(choices):
            rows[:, TILE + axis : LEVEL : MAX_AXES] = chains[rng.integers(len(chains), size=len(rows))]
        for knob, values in zip(moved_knobs(ints), knobs, strict=True):
            rows[:, KNOB + knob] = np.array(values)[rng.integers(len(values), size=len(rows))]
        found.append(rows[graph.fits(rows)])
    return np.concatenate(found)
