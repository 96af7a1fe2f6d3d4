"""Ansor (Zheng et al., OSDI 2020): sketches, random annotation, evolutionary search on a learned cost model.

The analytic model of this repository is not used. Constants that the paper does not give are those of the authors' code (TVM
v0.8).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.ansor.beam_of_sketches import BeamOfSketches
from agents.ansor.evolution import Evolution, Population, Settings
from agents.ansor.score_model import ScoreModel
from agents.ansor.sketches import derive_sketches
from agents.ansor.statement_features import statement_features
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Session
from gensor_gym.registry import check_known

TUNINGS = ("evolution", "beam", "none")


@dataclass(frozen=True)
class Ansor:
    """Ansor's search: measure batches of evolved programs until the budget is spent or no new program is found.

    The first population of a batch consists of random programs and the best measured programs. It evolves under the learned cost
    model. The best new programs and a share `epsilon` of random programs are measured, and the model is fitted again. Until
    `warmup` programs are measured, scores are random numbers, as in the authors' code. The defaults are the paper's setting.
    """

    space: str = "extended"
    batch: int = 64
    """Number of programs that are measured per batch."""
    epsilon: float = 0.05
    """Share of random programs in a batch. Their number is rounded down."""
    warmup: int = 100
    """Number of programs that are measured before the model predicts. Until then scores are random numbers."""
    population: int = 2048
    generations: int = 4
    random_generations: int = 2
    """Number of generations while scores are random numbers."""
    measured: float = 0.2
    """Largest share of a batch's first population that may consist of the best measured programs."""
    mutation: float = 0.85
    crossover: float = 0.05
    shrinkage: float = 1.0
    """L2 penalty on leaf values of the model's trees."""
    max_innermost: int = 64
    """Largest innermost factor of an axis: its register tile, divided by its virtual threads on a GPU."""
    beyond: bool = True
    """Whether sketches include algorithms and knobs that Ansor does not have (see `agents.ansor.sketches`)."""
    limited: bool = False
    """Whether tiles and locations of sketches are limited to those of a template, as in the paper's ablation."""
    tuning: str = "evolution"
    """`evolution`, or an ablation of the paper: `beam` (beam search on incomplete programs) or `none` (random search)."""
    patience: int = 5
    """Number of consecutive batches without a new trial after which the search ends."""

    @property
    def unguided(self) -> int:
        """Return the number of trials that are chosen before any measurement of this search can guide the choice."""
        return max(self.batch, self.warmup)

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Measure batch after batch until the budget is spent.

        The search also ends after `patience` batches in a row in which no program was new.
        """
        rounds = self.rounds(session, rng, self.model())
        idle = 0
        while idle < self.patience:
            idle = 0 if rounds.advance(self.batch) else idle + 1

    def model(self) -> ScoreModel:
        """Make an unfitted cost model."""
        return ScoreModel(self.warmup, self.shrinkage)

    def rounds(self, session: Session, rng: np.random.Generator, model: ScoreModel) -> Rounds:
        """Begin a search that the caller advances batch by batch.

        Several searches may share `model`, and then learn from each other's measurements. ValueError for invalid hyperparameters.
        """
        if self.batch < 1 or self.population < 1 or not 0 <= self.epsilon <= 1 or not 0 <= self.measured <= 1:
            raise ValueError(
                f"batch={self.batch}, population={self.population}, epsilon={self.epsilon}, measured={self.measured}: "
                "expected the first two to be 1 or more, the others within [0, 1]"
            )
        check_known("tuning", self.tuning, TUNINGS)
        return Rounds(self, session, rng, model)


@dataclass(frozen=True)
class AnsorSmall(Ansor):
    """Our variant of Ansor for tens of trials: it measures batches of 8, and the model predicts after the first batch.

    Leaf values are not penalised: a penalty would leave the few slow programs at the start too little weight to grow a tree.
    """

    batch: int = 8
    epsilon: float = 0.125
    warmup: int = 8
    population: int = 512
    shrinkage: float = 0.0


class Rounds:
    """A running search of Ansor: the programs measured so far and the learned model, between one batch and the next."""

    def __init__(self, settings: Ansor, session: Session, rng: np.random.Generator, model: ScoreModel) -> None:
        self.settings, self.session, self.rng, self.model = settings, session, rng, model
        sketches = derive_sketches(session.graph, settings.beyond, settings.max_innermost, settings.limited)
        numbers = Settings(settings.population, settings.generations, settings.mutation, settings.crossover)
        self.evolution = Evolution(session.graph, sketches, numbers)
        self.beam = BeamOfSketches(session.graph, sketches)
        self._task = f"{session.task.operator} {session.task.hardware.name}"
        self._measured = Population(session.graph.stack([]), np.empty(0, dtype=np.int64))
        self._seconds = np.empty(0)
        self._known: set[bytes] = set()

    def advance(self, limit: int) -> int:
        """Measure one batch of at most `limit` programs; return how many of them were new to the session."""
        before = self.session.trials
        chosen = self._choose(min(limit, self.settings.batch))
        if len(chosen) == 0:
            return 0
        answers = self.session.measure([Schedule(row) for row in chosen.rows])
        chosen = chosen.head(len(answers))
        seconds = np.array([answer.seconds for answer in answers])
        self._measured, self._seconds = self._measured.joined(chosen), np.concatenate([self._seconds, seconds])
        self._known.update(chosen.keys())
        if self.settings.tuning != "none":
            self.model.add(self._task, statement_features(self.session.graph, chosen.rows), seconds)
            self.model.fit()
        return self.session.trials - before

    def _choose(self, count: int) -> Population:
        settings = self.settings
        kept = self._best_measured(int(settings.population * settings.measured))
        random = self.evolution.sample(self.rng, settings.population - len(kept))
        ranked = self._ranked(random, kept).new(self._known)
        greedy = ranked.head(count - int(settings.epsilon * count))
        fresh = random.take(self.rng.permutation(len(random))).new(self._known)
        return greedy.joined(fresh).joined(ranked).new().head(count)

    def _ranked(self, random: Population, kept: Population) -> Population:
        """Return the programs to measure next, best predicted score first.

        These are all programs that evolution or beam search visits. With `tuning="none"` the result is empty.
        """
        if self.settings.tuning == "none":
            return random.head(0)
        if self.settings.tuning == "beam":
            return self.beam.construct(self._score, self.rng)
        generations = self.settings.generations if self.model.ready else self.settings.random_generations
        return self.evolution.evolve(random.joined(kept), self._score, generations, self.rng)

    def _best_measured(self, count: int) -> Population:
        order = np.argsort(self._seconds, kind="stable")[:count]
        return self._measured.take(order[np.isfinite(self._seconds[order])])

    def _score(self, rows: np.ndarray) -> np.ndarray:
        if not self.model.ready:
            return self.rng.random(len(rows))
        return self.model.predict(statement_features(self.session.graph, rows))
