"""Genetic algorithm over programs: a gene is the tile sizes of one axis, or a knob."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.core.ledger import Ledger
from agents.core.programs import Programs
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.session import Session

TRIES = 64
"""Maximum number of draws per child until it is legal and new. Random programs then replace missing children."""

Individual = tuple[float, np.ndarray]
"""(seconds, vector) of a measured program."""


@dataclass(frozen=True)
class Genetic:
    """Genetic algorithm by measurement, with tournament selection, uniform crossover, mutation and elitism.

    Every gene (the tile sizes of an axis, or a knob) of a child comes from one of two parents. Illegal or already measured
    children are drawn again. No model is used.
    """

    space: str = "extended"
    population: int = 16
    elite: int = 6
    """Number of best programs that survive a generation. The other programs of a population are children."""
    tournament: int = 3
    """Number of programs drawn in a tournament. The fastest of them becomes a parent."""
    mutation: float = 1.5
    """Mean number of columns of a child that mutate."""
    local: float = 0.7
    """Share of mutations that change one number of a column by one step. Other mutations draw any value of the column."""

    def __post_init__(self) -> None:
        if not 0 < self.elite < self.population or self.tournament < 1:
            raise ValueError(
                f"population={self.population}, elite={self.elite}, tournament={self.tournament}: expected "
                "0 < elite < population and a tournament of 1 or more"
            )

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Measure generation after generation until the budget is spent or every program is measured."""
        ledger = Ledger(session)
        alive = self._measured(ledger, ledger.walked(rng, self.population))
        while True:
            alive = sorted(alive, key=lambda one: one[0])[: self.population]
            children = self._children(ledger, alive, rng)
            if not children:
                return
            alive = alive[: self.elite] + self._measured(ledger, children)

    def _measured(self, ledger: Ledger, schedules: list[Schedule]) -> list[Individual]:
        found = []
        for schedule, measurement in zip(schedules, ledger.measure(schedules), strict=False):
            vector = ledger.programs.vector(schedule)
            if vector is not None:
                found.append((measurement.seconds, vector))
        return found

    def _children(self, ledger: Ledger, alive: list[Individual], rng: np.random.Generator) -> list[Schedule]:
        wanted = self.population - self.elite
        children: dict[Schedule, None] = {}
        for _ in range(TRIES * wanted if alive else 0):
            if len(children) == wanted:
                break
            vector = self._child(ledger.programs, alive, rng)
            child = ledger.programs.schedule(vector)
            if child not in ledger and ledger.programs.legal(vector[None])[0]:
                children[child] = None
        if len(children) < wanted:
            children |= dict.fromkeys(ledger.fresh(rng, wanted - len(children)))
        return list(children)

    def _child(self, programs: Programs, alive: list[Individual], rng: np.random.Generator) -> np.ndarray:
        """Breed a child by uniform crossover of two parents and mutation; return its vector, which may be illegal."""
        mother, father = (self._parent(alive, rng) for _ in range(2))
        child = np.where(rng.random(len(mother)) < 0.5, mother, father)
        chance = min(1.0, self.mutation / max(1, len(child)))
        for column in np.flatnonzero(rng.random(len(child)) < chance):
            child = self._mutated(programs, child, int(column), rng)
        return child

    def _parent(self, alive: list[Individual], rng: np.random.Generator) -> np.ndarray:
        drawn = rng.integers(0, len(alive), size=self.tournament)
        return alive[int(min(drawn, key=lambda i: alive[i][0]))][1]

    def _mutated(self, programs: Programs, child: np.ndarray, column: int, rng: np.random.Generator) -> np.ndarray:
        if rng.random() < self.local:
            places = [place for c, place in programs.places if c == column]
            moved = programs.moved(child, (column, int(rng.choice(places)), int(rng.choice([-1, 1]))))
            return child if moved is None else moved
        child = child.copy()
        child[column] = rng.integers(0, programs.counts[column])
        return child
