"""Which programs of an operator are recorded: all of a small space, or a mixture of promising and of random ones.

Half of a mixture are the model's best, which is where ranking matters, found by constructions of different weights and
ordered with some noise, so that what the model underrates is among them. The other half are random legal programs that
walk from the smallest programs of each kind: what no model chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest

import numpy as np

from agents.core.ranking import diverse
from agents.gensor.markov import MarkovExtended
from experiments.common.schedules import schedules_of
from experiments.device.work.makers import Programs, kernels
from gensor_gym import hardware
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.starts import starts
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator

COMPACT, EXTENDED = "compact", "extended"
TRAVERSERS = (MarkovExtended(), MarkovExtended(model=1.5, final_temperature=1.0), MarkovExtended(traffic=2.0, model=2.0))
"""A construction for each."""
JITTER = 0.3
"""Standard deviation of the noise on the logarithm of predicted times."""
SLOWEST = 40.0
"""Random programs are predicted to take at most so many times the best: slower ones cost the device much and say little."""
_STEPS = (8, 64)
"""Of a random walk."""
_TRIES = 12
"""Walks for each random program that is wanted."""

Plan = tuple[list[Schedule], Programs]
"""Every schedule to record in order, and the first of them with their kernels."""


def plan(op: Operator, machine: str, space: str, count: int, seed: int, first: int) -> Plan:
    """All of space `compact` in a random order that is always the same, or a `mixture` of `count` of another space."""
    hw = hardware.get(machine)
    if space == COMPACT:
        found = schedules_of(op, hw, space)
        chosen = [found[i] for i in np.random.default_rng(seed).permutation(len(found))]
    else:
        chosen = mixture(op, hw, count, seed)
    return chosen, kernels(op, machine, chosen[:first])


def mixture(op: Operator, hw: Hardware, count: int, seed: int) -> list[Schedule]:
    """Up to `count` programs of space `extended`, promising and random in turn.

    Where the operator can use tensor cores all of them do.
    """
    rng = np.random.default_rng(seed)
    graph = ConstructionGraph(op, hw, EXTENDED)
    kinds = [Schedule(row) for row in starts(graph.tables, graph.initial().row)]
    cores = any(_on_tensor_cores(kind) for kind in kinds)
    good, best = _promising(graph, rng)
    drawn = _random(graph, kinds, rng, _TRIES * count, SLOWEST * best)
    in_turn = (s for s in chain.from_iterable(zip_longest(good, drawn)) if s is not None)
    wanted = dict.fromkeys(s for s in in_turn if _on_tensor_cores(s) or not cores)
    return list(wanted)[:count]


def _on_tensor_cores(schedule: Schedule) -> bool:
    """Whether the program uses them."""
    return schedule.knob("tensor_core") != 0


def _promising(graph: ConstructionGraph, rng: np.random.Generator) -> tuple[Iterable[Schedule], float]:
    """The best of several constructions in turn, and the least predicted seconds."""
    rankings, best = [], np.inf
    for traverser in TRAVERSERS:
        found = traverser.construct(graph, rng)
        noisy = np.log(found.latencies) + JITTER * rng.standard_normal(len(found.latencies))
        shuffled = tuple(found.schedules[i] for i in np.argsort(noisy))
        rankings.append([found.schedules[0], *diverse(shuffled, traverser.per_register_tile)])
        best = min(best, found.latencies[0])
    in_turn = chain.from_iterable(zip_longest(*rankings))
    return dict.fromkeys(s for s in in_turn if s is not None), best


def _random(
    graph: ConstructionGraph, kinds: list[Schedule], rng: np.random.Generator, tries: int, slowest: float
) -> Iterator[Schedule]:
    """Random programs of every kind in turn."""
    for number in range(tries):
        kind = kinds[number % len(kinds)]
        schedule = graph.random_schedule(rng, int(rng.integers(*_STEPS)), kind)
        if graph.latency(schedule) <= slowest:
            yield schedule
