"""Check of a schedule's legality by the construction graph. Graphs of recent tasks are cached."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from gensor_gym.codegen import families
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


@lru_cache(maxsize=32)
def graph_of(op: Operator | Dataflow, hw: Hardware) -> Any:
    """Return the construction graph of an operator on the hardware, in the largest space, which contains every other space."""
    return families.graph_of(op, hw)


def is_legal(op: Operator | Dataflow, schedule: Any, hw: Hardware) -> bool:
    """Return whether the schedule is well formed for the operator and within the hardware's limits, in any space."""
    return graph_of(op, hw).is_legal(schedule)
