"""Choose the schedules of a task that a study visits: the whole space, or a random draw from it."""

from __future__ import annotations

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

MISSES = 200
"""Number of consecutive random schedules that are already known after which a space counts as exhausted."""


def schedules_of(op: Operator, hw: Hardware, space: str, count: int | None = None, seed: int = 0) -> list[Schedule]:
    """Return all legal schedules of a space, or `count` distinct random schedules (fewer if the space has no more)."""
    graph = ConstructionGraph(op, hw, space)
    if count is None:
        return [Schedule(row) for batch in graph.enumerate() for row in batch]
    rng, found, misses = np.random.default_rng(seed), dict[bytes, Schedule](), 0
    while len(found) < count and misses < MISSES:
        schedule = graph.random_schedule(rng)
        misses = misses + 1 if schedule.key in found else 0
        found.setdefault(schedule.key, schedule)
    return list(found.values())
