"""Programs drawn uniformly from a space that is too large to enumerate."""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph

BATCH = 65536


def sample_evenly(graph: ConstructionGraph, rng: np.random.Generator, candidates: int) -> np.ndarray:
    """Draw `candidates` combinations of a space uniformly, and return the legal ones as rows int32 [<= candidates, ROW].

    So all legal programs are equally likely.
    """
    if candidates < 1:
        raise ValueError(f"candidates is {candidates!r}: expected one or more")
    found = []
    for begin in range(0, candidates, BATCH):
        rows = graph.coordinates.rows(graph.coordinates.draw(rng, min(BATCH, candidates - begin)))
        found.append(rows[graph.fits(rows)])
    return np.concatenate(found)
