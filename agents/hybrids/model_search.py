"""Annealing and evolution on the analytic model: the searches of AutoTVM and Ansor without learning.

Both papers search on a model that is learned from measurements (`agents.autotvm.annealing_on_model`, `agents.ansor.evolution`).
Here the analytic model replaces it. A comparison with other strategies on the model then compares only the searches.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from agents.ansor.evolution import Evolution, Settings
from agents.ansor.sketches import derive_sketches
from agents.autotvm.annealing_on_model import AnnealingOnModel
from agents.autotvm.template import Template
from agents.core.ranking import Constructing, Construction, measure_rankings, ranked
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.session import Session


@dataclass
class Asked:
    """Record of one run of a search by the model: all programs that the model has evaluated, and their seconds."""

    graph: ConstructionGraph
    rows: list[np.ndarray] = field(default_factory=list)
    seconds: list[np.ndarray] = field(default_factory=list)
    begin: float = field(default_factory=time.perf_counter)

    def ask(self, rows: np.ndarray) -> np.ndarray:
        """Evaluate encoded programs [B, ROW] by the model and remember them; return their model seconds float64 [B]."""
        rows = np.ascontiguousarray(rows, dtype=np.int32)
        seconds = self.graph.latencies(rows)
        self.rows.append(rows)
        self.seconds.append(seconds)
        return seconds

    def construction(self) -> Construction:
        """Rank the legal evaluated programs by the model."""
        rows, seconds = np.concatenate(self.rows), np.concatenate(self.seconds)
        legal = np.isfinite(seconds)
        schedules, latencies = ranked(rows[legal], seconds[legal], self.graph)
        return Construction(schedules, latencies, len(rows), len(rows), time.perf_counter() - self.begin)


@dataclass(frozen=True)
class ModelSearch(Constructing):
    """Base of searches by the model that run again and again, independently, without end (a run is a round)."""

    space: str = "gensor"
    per_register_tile: int = 2

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Run the search again and again (in rounds), and measure the programs of each round in order of rank.

        The search ends when the budget is spent or a round has no new program.
        """
        measure_rankings(self.construct, session, rng, self.per_register_tile)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Run the search once, by the model; return its ranking. Nothing is measured."""
        return next(self.rounds(graph, rng))

    def constructions(self, graph: ConstructionGraph, rng: np.random.Generator, once: bool = False) -> Iterator[Construction]:
        """Yield the rankings of one run of the search after another. `once` makes no difference."""
        return self.rounds(graph, rng)

    @abstractmethod
    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield one ranking per run of the search. Every run begins at new random programs."""


@dataclass(frozen=True)
class ModelAnnealing(ModelSearch):
    """Parallel simulated annealing by the model over tile sizes and knobs: AutoTVM's search without learning.

    The score is -log of the model's latency, and the temperature falls linearly from `start_temperature` to 0. `gensor
    tune_budgets` chose the defaults for 4,096 evaluations on train and validation (H200, space `gensor`). AutoTVM's 128 chains of
    500 steps assume free scores.
    """

    chains: int = 2
    steps: int = 512
    start_temperature: float = 0.02
    """Temperature at the start: a program whose log latency is larger by this number is accepted with probability 1 / e."""

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield one ranking per annealing. Every annealing begins at new random programs."""
        template = Template(graph)
        while True:
            chains = AnnealingOnModel(template, self.chains, self.steps, self.start_temperature, patience=self.steps)
            least = max(self.chains, len(template.strata))  # with few chains, their strata are random
            chains.points = template.random(least, rng)[: self.chains]
            yield anneal(graph, chains, rng).construction()


def anneal(graph: ConstructionGraph, chains: AnnealingOnModel, rng: np.random.Generator) -> Asked:
    """Run the annealing chains once, with -log of the model's latency as the score; return a record of all evaluated programs."""
    asked = Asked(graph)

    def score(points: np.ndarray) -> np.ndarray:
        found: np.ndarray = -np.log(asked.ask(chains.template.rows(points)))
        return found

    chains.best(score, 1, set(), rng)
    return asked


@dataclass(frozen=True)
class ModelEvolution(ModelSearch):
    """Ansor's evolution of programs by the model, without learning.

    The score is the roofline floor divided by the model's latency. Probabilities of mutation and crossover are Ansor's.
    Population and generations are ours, for thousands of evaluations.
    """

    population: int = 128
    generations: int = 16

    def rounds(self, graph: ConstructionGraph, rng: np.random.Generator) -> Iterator[Construction]:
        """Yield one ranking per evolution. Every evolution begins with a new random population."""
        evolution = Evolution(graph, derive_sketches(graph), Settings(self.population, self.generations))
        while True:
            asked = Asked(graph)

            def score(rows: np.ndarray, asked: Asked = asked) -> np.ndarray:
                found: np.ndarray = graph.floor / asked.ask(rows)
                return found

            evolution.evolve(evolution.sample(rng, self.population), score, self.generations, rng)
            yield asked.construction()
