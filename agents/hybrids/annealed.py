"""Annealing by the model from the best programs of another strategy's ranking.

A walk on the construction graph changes one tile at a time. An annealing chain changes all tile sizes of an axis at once, so it
crosses barriers of the model. Chains continue from the programs that a walk or a policy finds within hundreds of evaluations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

import numpy as np

from agents.autotvm.annealing_on_model import AnnealingOnModel
from agents.autotvm.template import Template
from agents.columns.policy import ColumnWriter
from agents.core.ranking import REGISTER_TILE, Construction, best_of_each, ranked
from agents.gensor.markov import Markov
from agents.hybrids.model_search import anneal
from agents.policies.ppo import Ppo
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.tables.layout import ROW

template_of = lru_cache(maxsize=4)(Template)
"""Function that returns the template of a graph, cached for the next round, because making it enumerates every column."""


def annealed(
    graph: ConstructionGraph, found: Construction, chains: int, steps: int, temperature: float, rng: np.random.Generator
) -> Construction:
    """Anneal by the model from the best programs of a ranking, and return the ranking with the visited programs added.

    Each chain starts at the best program of another of the fastest register tiles. If there are fewer starts than chains, starts
    are used repeatedly. Programs outside the template are skipped; if none is left, chains begin at random programs.
    """
    begin = time.perf_counter()
    template = template_of(graph)
    rows = np.array([schedule.row for schedule in found.schedules], dtype=np.int32).reshape(-1, ROW)
    best = best_of_each(REGISTER_TILE, rows, np.array(found.latencies))
    points = islice((p for row in best if (p := template.vector_of(row)) is not None), chains)
    begun = AnnealingOnModel(template, chains, steps, temperature, patience=steps)
    if kept := list(points):
        begun.points = np.resize(np.array(kept), (chains, len(kept[0])))
    more = anneal(graph, begun, rng).construction()
    of_more = np.array([schedule.row for schedule in more.schedules], dtype=np.int32).reshape(-1, ROW)
    schedules, latencies = ranked(
        np.concatenate([rows, of_more]), np.concatenate([found.latencies, more.latencies]), graph
    )
    return replace(
        found, schedules=schedules, latencies=latencies, visited=found.visited + more.visited,
        evaluations=found.evaluations + more.evaluations, seconds=found.seconds + time.perf_counter() - begin,
    )  # fmt: skip


@dataclass(frozen=True)
class Annealed:
    """Mixin of a constructing strategy: annealing chains (`agents.autotvm.annealing_on_model`) continue from its programs."""

    chains: int = 2
    """Number of annealing chains, each from the best program of another register tile."""
    chain_steps: int = 512
    """Number of steps of each chain."""
    chain_temperature: float = 0.02
    """Temperature at the start of a chain. The defaults of the three fields are those of `ModelAnnealing`."""

    def __post_init__(self) -> None:
        if self.chains < 1 or self.chain_steps < 1 or self.chain_temperature < 0:
            given = f"chains={self.chains}, chain_steps={self.chain_steps}, chain_temperature={self.chain_temperature}"
            raise ValueError(f"{given}: expected 1 or more, 1 or more, and 0 or more")
        super().__post_init__()  # type: ignore[misc]

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Construct a ranking with the strategy and add the programs of the annealing chains; nothing is measured."""
        found: Construction = super().construct(graph, rng)  # type: ignore[misc]
        return annealed(graph, found, self.chains, self.chain_steps, self.chain_temperature, rng)


@dataclass(frozen=True)
class PolicyAnnealing(Annealed, Ppo):
    """Run a few episodes of a policy, then annealing chains by the model from the best programs."""

    episodes: int = 4


@dataclass(frozen=True)
class ColumnsAnnealing(Annealed, ColumnWriter):
    """Write a few programs column by column with a policy, then run annealing chains from the best programs."""

    episodes: int = 32


@dataclass(frozen=True)
class MarkovAnnealing(Annealed, Markov):
    """Run Gensor's traverser, then annealing chains from the best programs. The combination is ours, not Gensor's.

    With a short walk (experiments/data/tuned/markov_annealing_budgets.json) it is the baseline of `PolicyAnnealing`. By default
    the walk is that of `Markov`, with about 100,000 evaluations.
    """
