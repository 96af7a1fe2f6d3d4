"""Annealing by the model behind another construction: its chains begin at the best programs of that, and not at random ones.

A walk on the construction graph changes one tile at a time; a chain changes the whole column of tiles of an axis at once, so
that no valley of the model lies between two programs. They go on from what a walk or a policy finds in some hundred evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from agents.annealing_on_model import AnnealingOnModel
from agents.markov import Markov
from agents.model_search import anneal
from agents.ppo import Ppo
from agents.ranking import REGISTER_TILE, Construction, best_of_each, ranked
from agents.template import Template
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule

template_of = lru_cache(maxsize=4)(Template)
"""The template of a graph, which lists every column, kept for the next round."""


def annealed(
    graph: ConstructionGraph, found: Construction, chains: int, steps: int, temperature: float, rng: np.random.Generator
) -> Construction:
    """A construction, with what chains from the best programs of its register tiles asked the model about added.

    Where it has fewer register tiles than there are chains, several begin at one; programs that the template does not have, none.
    """
    template = template_of(graph)
    rows = np.array([schedule.row for schedule in found.schedules])
    best = best_of_each(REGISTER_TILE, rows, np.array(found.latencies))
    points = [point for row in best[:chains] if (point := template.configuration(Schedule(row))) is not None]
    begun = AnnealingOnModel(template, chains, steps, temperature, patience=steps)
    if points:
        begun.points = np.resize(np.array(points), (chains, len(points[0])))
    more = anneal(graph, begun, rng).construction()
    of_more = np.array([schedule.row for schedule in more.schedules]).reshape(-1, rows.shape[1])
    schedules, latencies = ranked(
        np.concatenate([rows, of_more]), np.concatenate([found.latencies, more.latencies]), graph
    )
    return replace(
        found, schedules=schedules, latencies=latencies, visited=found.visited + more.visited,
        evaluations=found.evaluations + more.evaluations, seconds=found.seconds + more.seconds,
    )  # fmt: skip


@dataclass(frozen=True)
class Annealed:
    """Put before a strategy that constructs: chains of `agents.annealing_on_model` go on from what it finds."""

    chains: int = 2
    chain_steps: int = 512
    chain_temperature: float = 0.02
    """As that of `ModelAnnealing`, from which the three values are."""

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """The strategy's construction, then the chains; no measurement."""
        found: Construction = super().construct(graph, rng)  # type: ignore[misc]
        return annealed(graph, found, self.chains, self.chain_steps, self.chain_temperature, rng)


@dataclass(frozen=True)
class PolicyAnnealing(Annealed, Ppo):
    """A few episodes of a policy, then the chains."""

    episodes: int = 4


@dataclass(frozen=True)
class MarkovAnnealing(Annealed, Markov):
    """Gensor's traverser, then the chains; ours, and not called Gensor. What `PolicyAnnealing` is to be compared with."""
