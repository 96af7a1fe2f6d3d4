"""Validation operators in every data type that tensor cores take, and the first programs of each search on them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from agents.columns.choices import is_joint
from agents.columns.policy import Columns
from agents.strategy import get_strategy
from experiments.training.operators.halves import halves
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.coordinates import usable_values
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import KNOB, TENSOR_CORE

HARDWARE, SPACE, OPERATORS = "h100", "extended", "split/v1/validation"
HALVES = ("float16", "bfloat16")
DTYPES = ("float32", *HALVES, "int8")
FIRST = 10
"""Programs of a search that count: so many are measured of one in a comparison."""
DRAWN = 64
"""Programs that a policy writes for them, ranked by the model: as many as in a round of its search."""


@lru_cache(maxsize=len(DTYPES))
def validation(dtype: str) -> list[ConstructionGraph]:
    """The tasks of a data type: all that have a choice in float32, those that tensor cores take in the others."""
    given = list(operators.resolve(OPERATORS))
    graphs = [ConstructionGraph(op, HARDWARE, SPACE) for op in (given if dtype == "float32" else halves(given, dtype))]
    return [graph for graph in graphs if (takes_tensor_cores(graph) if dtype != "float32" else is_joint(graph))]


def takes_tensor_cores(graph: ConstructionGraph) -> bool:
    """Whether a task has programs on tensor cores."""
    return len(usable_values(graph.tables.ints, TENSOR_CORE - KNOB)) > 1


def of_policy(folder: str, graph: ConstructionGraph, drawn: int = DRAWN, seed: int = 0) -> tuple[list[Schedule], float]:
    """(the first of so many programs that a policy writes, fastest by the model first; seconds of the fastest)."""
    found = Columns(space=SPACE, checkpoint=folder, episodes=drawn).construct(graph, np.random.default_rng(seed))
    return list(found.schedules[:FIRST]), found.latencies[0] if found.latencies else graph.latency(graph.initial())


@lru_cache(maxsize=1024)
def of_traverser(graph: ConstructionGraph, count: int = FIRST, seed: int = 0) -> tuple[list[Schedule], float]:
    """As `of_policy`, of `markov_ext`."""
    strategy = get_strategy("markov_ext", space=SPACE)
    found = strategy.construct(graph, np.random.default_rng(seed))  # type: ignore[attr-defined]
    return list(found.schedules[:count]), found.latencies[0]
