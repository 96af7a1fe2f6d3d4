"""Coordinate descents by the model, which change all tile sizes of an axis at once, from random programs of every kind."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from agents.core.programs import Programs
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts

_NEAR = 24
"""Number of steps of a random walk from a small program of a certain kind. Longer walks would leave the kind."""


def begun(graph: ConstructionGraph, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return `count` encoded random programs [ROW] at which descents by the model start. On a GPU they alternate between kinds.

    A kind is CUDA cores or a kind of tensor-core instruction (`gensor_gym.graph.starts`): no change of a single column leads to
    tensor cores, and a random walk almost never does.
    """
    rows = starts(graph.tables, graph.initial().row)[1:] if graph.hardware.kind == "gpu" else ()
    kinds: list[tuple[int | None, Schedule | None]] = [(None, None), *((_NEAR, Schedule(row)) for row in rows)]
    return [graph.random_schedule(rng, *kinds[at % len(kinds)]).row for at in range(count)]


def descended(programs: Programs, first: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Run a coordinate descent by the model from each of the encoded programs `first`.

    A descent ends when no other choice for one column (the tiles of an axis, or a knob) is faster.
    Return (the ends of the descents and then all their neighbours, as rows int32 [N, ROW]; their model seconds [N]).
    """
    ends = [programs.descend(row) for row in first]
    around = [programs.neighbours(row) for row, _ in ends]
    rows = np.concatenate([np.stack([row for row, _ in ends]), *(found for found, _ in around)])
    return rows, np.concatenate([[best for _, best in ends], *(found for _, found in around)])
