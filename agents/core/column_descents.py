"""Coordinate descents on the model over whole columns, from random programs of every kind."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from agents.core.programs import Programs
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts

_NEAR = 24
"""Number of steps of a random walk from a start of a certain kind. Longer walks would leave the kind."""


def begun(graph: ConstructionGraph, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Walk to `count` random programs [ROW], the starts of descents. On a GPU they alternate between kinds of programs.

    No single column leads to tensor cores, and a random walk almost never does; `gensor_gym.graph.starts` lists the kinds.
    """
    rows = starts(graph.tables, graph.initial().row)[1:] if graph.hardware.kind == "gpu" else ()
    kinds: list[tuple[int | None, Schedule | None]] = [(None, None), *((_NEAR, Schedule(row)) for row in rows)]
    return [graph.random_schedule(rng, *kinds[at % len(kinds)]).row for at in range(count)]


def descended(programs: Programs, first: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Descend from the rows `first`; return the ends and then all their neighbours: rows int32 [N, ROW], model seconds [N].

    Neighbours differ in one column.
    """
    ends = [programs.descend(row) for row in first]
    around = [programs.neighbours(row) for row, _ in ends]
    rows = np.concatenate([np.stack([row for row, _ in ends]), *(found for found, _ in around)])
    return rows, np.concatenate([[best for _, best in ends], *(found for _, found in around)])
