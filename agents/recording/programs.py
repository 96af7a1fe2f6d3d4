"""Choose the programs that are recorded for an operator: proposals of searches, programs near them, and random programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from agents import get_strategy
from agents.core.ranking import Construction
from agents.runs.settings import ROOT
from gensor_gym import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

SPACE = "extended"
TRAVERSER_RANKS, POLICY_RANKS = (0, 1, 2, 3, 7, 31, 127), (0, 1)
"""Ranks whose programs are recorded from the rankings of `markov_ext` and of the policy. The model ranks both, fastest first."""
PAPER_RANKS = (0,)
"""Ranks whose programs are recorded from the ranking of `markov`."""
NEAR, STEPS = 5, (1, 2, 4)
"""Number of recorded programs near one of the traverser's first three, and their possible distances in random actions."""
RANKED, OF = 2, 16
"""Number of recorded programs that are each the best by the model of OF random programs."""
RANDOM = 2
POLICY = ROOT / "agents" / "data" / "policies" / "columns_cpu"


@dataclass(frozen=True)
class Program:
    """A program to be recorded and its origin: `markov_ext`, `markov`, `columns`, `near`, `ranked` or `random`."""

    origin: str
    rank: int
    schedule: Schedule


def programs(op: Operator, hw: Hardware, seed: int) -> list[Program]:
    """Return the distinct programs to be recorded for an operator, in random order."""
    rng = np.random.default_rng([seed, *hashlib.sha256(str(op).encode()).digest()])
    found: dict[bytes, Program] = {}
    for program in _proposed(ConstructionGraph(op, hw, SPACE), rng):
        found.setdefault(program.schedule.key, program)
    listed = list(found.values())
    return [listed[place] for place in rng.permutation(len(listed))]


def _proposed(graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Program]:
    """Yield the programs to be recorded, one origin after another. Some may be equal."""
    traverser = _constructed("markov_ext", graph, rng)
    yield from _ranked("markov_ext", traverser, TRAVERSER_RANKS)
    paper = ConstructionGraph(graph.operator, graph.hardware, "gensor")
    yield from _ranked("markov", _constructed("markov", paper, rng), PAPER_RANKS)
    yield from _ranked("columns", _constructed("columns", graph, rng), POLICY_RANKS)
    for number in range(NEAR):
        yield Program("near", number, _near(graph, traverser[number % 3], int(rng.choice(STEPS)), rng))
    for number in range(RANKED):
        drawn = [graph.random_schedule(rng) for _ in range(OF)]
        yield Program("ranked", number, drawn[int(np.argmin(graph.latencies(graph.stack(drawn))))])
    for number in range(RANDOM):
        yield Program("random", number, graph.random_schedule(rng))


def _ranked(origin: str, schedules: Sequence[Schedule], ranks: Sequence[int]) -> Iterator[Program]:
    """Yield the programs at the given ranks of a ranking; for a rank beyond the end, the last program.

    Nothing is yielded for an empty ranking.
    """
    if schedules:
        yield from (Program(origin, rank, schedules[min(rank, len(schedules) - 1)]) for rank in ranks)


def _constructed(name: str, graph: ConstructionGraph, rng: np.random.Generator) -> list[Schedule]:
    found: Construction = _strategy(name).construct(graph, rng)
    return list(found.schedules)


@cache
def _strategy(name: str) -> Any:
    return get_strategy(name, **({"checkpoint": str(POLICY)} if name == "columns" else {}))


def _near(graph: ConstructionGraph, schedule: Schedule, steps: int, rng: np.random.Generator) -> Schedule:
    for _ in range(steps):
        legal = np.flatnonzero(graph.action_mask(schedule))[1:]  # without `stop`
        if len(legal):
            schedule = graph.transition(schedule, int(rng.choice(legal)))
    return schedule
