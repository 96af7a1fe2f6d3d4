"""The schedules of a task that are gone over: all of its space, or a random draw of it."""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

MISSES = 200
"""Random schedules in a row that are known already, after which a space counts as exhausted."""


def schedules_of(op: Operator, hw: Hardware, space: str, count: int | None = None, seed: int = 0) -> list[Schedule]:
    """Every legal schedule of a space as enumerated, or `count` different random ones (fewer where it has no more)."""
    graph = ConstructionGraph(op, hw, space)
    if count is None:
        return [Schedule(row) for batch in graph.enumerate() for row in batch]
    rng, found, misses = np.random.default_rng(seed), dict[bytes, Schedule](), 0
    while len(found) < count and misses < MISSES:
        schedule = graph.random_schedule(rng)
        misses = misses + 1 if schedule.key in found else 0
        found.setdefault(schedule.key, schedule)
    return list(found.values())
