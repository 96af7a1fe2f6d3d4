"""Whether a schedule may be built at all, asked of the construction graph; graphs of the tasks used lately are kept."""

from __future__ import annotations

from functools import lru_cache

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


@lru_cache(maxsize=32)
def graph_of(op: Operator, hw: Hardware) -> ConstructionGraph:
    """The graph of the extended space, which contains every other."""
    return ConstructionGraph(op, hw, space="extended")


def is_legal(op: Operator, schedule: Schedule, hw: Hardware) -> bool:
    """Whether the schedule is within the limits of the hardware, in any space."""
    return graph_of(op, hw).is_legal(schedule)
