"""Ansor's evolutionary search on a learned model (section 5.1): mutation, crossover, selection by score.

The paper gives no probabilities, so those of the authors' code are used (weights of mutations of TVM v0.8). Crossover in the
paper takes each stage of a program from one of two parents. Our programs have one stage. In our reconstruction, each axis and
each knob comes from one of two parents of the same sketch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np

from agents.ansor.sketches import LOCATIONS, Sketch
from agents.ansor.thread_binding import binds
from agents.ansor.tile_moves import TileMoves, pick
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.coordinates import Column
from gensor_gym.graph.knobs import KNOB_INDEX
from gensor_gym.graph.tables.layout import KNOB
from gensor_gym.graph.tables.tables import IS_CPU, NUM_LEVELS

TILES, GRANULARITY, PRAGMA, LOCATION = range(4)
WEIGHTS = {"cpu": (0.90, 0.01, 0.04, 0.05), "gpu": (0.90, 0.0, 0.10, 0.0)}
"""Kind of hardware -> probabilities of the four mutations (TVM v0.8).

The mutations change tiles, parallel granularity, unrolling and vectorisation, and computation location.
"""
FACTORS = ("thread_split", "reduce_threads", "split_k")
"""Knobs that split a reduction into factors. They are mutated together with tiles."""

LEAST = 50
"""Smallest number of random programs in a first population (TVM v0.8: sample_init_min_population)."""
ROUNDS = 500
"""Maximum number of rounds of draws for the random programs of a first population."""
DRAWS = 5
"""Number of random numbers that decide one child."""

Score = Callable[[np.ndarray], np.ndarray]
"""Function that predicts the scores float64 [B] of encoded programs [B, ROW]; larger is better."""


@dataclass(frozen=True)
class Settings:
    """Settings of evolution, from TVM v0.8. The crossover ratio is from a fork of TVM, because v0.8 lacks it."""

    population: int = 2048
    generations: int = 4
    mutation: float = 0.85
    crossover: float = 0.05
    tries: int = 10
    """Maximum number of rounds of draws for the children of a generation. Copies of parents then replace missing children."""


@dataclass(frozen=True)
class Population:
    """A set of P programs: each is encoded as a row of `rows` [P, ROW], and `sketches` [P] is the index of its sketch."""

    rows: np.ndarray
    sketches: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, indices: np.ndarray) -> Population:
        """Return the programs at the given positions of this population."""
        return Population(self.rows[indices], self.sketches[indices])

    def head(self, count: int) -> Population:
        """Return the first `count` programs, or all if the population is smaller."""
        return self.take(np.arange(min(count, len(self))))

    def joined(self, other: Population) -> Population:
        """Return a population with the programs of this one, then those of `other`."""
        return Population(np.concatenate([self.rows, other.rows]), np.concatenate([self.sketches, other.sketches]))

    def keys(self) -> list[bytes]:
        """Return one hashable key per program: the bytes of its row."""
        return [row.tobytes() for row in self.rows]

    def new(self, known: Container[bytes] = ()) -> Population:
        """Return the distinct programs whose keys are not in `known`, in the order of this population."""
        first = {key: i for i, key in reversed(list(enumerate(self.keys()))) if key not in known}
        return self.take(np.sort(np.fromiter(first.values(), dtype=np.int64, count=len(first))))


class Evolution:
    """Random sampling and evolutionary search of programs, within the sketches of one graph."""

    def __init__(self, graph: ConstructionGraph, sketches: list[Sketch], settings: Settings) -> None:
        self.graph, self.sketches, self.settings = graph, sketches, settings
        ints = graph.tables.ints
        levels = int(ints[NUM_LEVELS])
        self._weights = WEIGHTS["cpu" if ints[IS_CPU] else "gpu"]
        self._moves = [[TileMoves(axis.values, levels) for axis in sketch.axes] for sketch in sketches]
        self._axes = [[a for a, axis in enumerate(sketch.axes) if len(axis.values) > 1] for sketch in sketches]
        self._knobs = [self._by_kind(sketch) for sketch in sketches]
        self._kinds = [self._chances(number) for number in range(len(sketches))]

    def sample(self, rng: np.random.Generator, count: int) -> Population:
        """Draw up to `count` random legal programs; all sketches are equally likely.

        On a GPU, programs must also have enough threads (`thread_binding.binds`). If few draws are legal, fewer programs are
        returned: 50 (`LEAST`) suffice after `tries` rounds of draws, any number after 500 (`ROUNDS`) rounds.
        """
        found = Population(self.graph.stack([]), np.empty(0, dtype=np.int64))
        for turn in range(ROUNDS):
            if len(found) >= (count if turn < self.settings.tries else min(count, LEAST)):
                break
            ids = rng.integers(len(self.sketches), size=count)
            rows = np.repeat(self.sketches[0].base[None], count, axis=0)
            for number, sketch in enumerate(self.sketches):
                mine = ids == number
                rows[mine] = sketch.sample(rng, int(mine.sum()))
            kept = np.flatnonzero(self.graph.fits(rows) & binds(self.graph, rows))
            found = found.joined(Population(rows[kept], ids[kept]))
        return found.head(count)

    def evolve(self, first: Population, score: Score, generations: int, rng: np.random.Generator) -> Population:
        """Evolve the programs `first`; return all distinct programs of all generations, highest score first.

        Programs with equal scores stay in the order in which they appeared.
        """
        scores: dict[bytes, float] = {}
        met, now = first.head(0), first
        for generation in range(generations + 1):
            fresh = now.new(scores)
            if len(fresh):
                scores.update(zip(fresh.keys(), score(fresh.rows).tolist(), strict=True))
            met = met.joined(fresh)
            if generation < generations and len(now):
                now = self._breed(now, np.array([scores[key] for key in now.keys()]), rng)
        return met.take(np.argsort([-scores[key] for key in met.keys()], kind="stable"))

    def _breed(self, parents: Population, scores: np.ndarray, rng: np.random.Generator) -> Population:
        """Breed the next generation of programs by mutation and crossover.

        Parents are drawn with probabilities proportional to their `scores`, where negative scores count as 0.
        """
        chances = np.maximum(scores, 0.0)
        chances = chances / chances.sum() if chances.sum() > 0 else np.full(len(chances), 1.0 / len(chances))
        wanted = min(self.settings.population, len(parents))
        children = parents.head(0)
        for _ in range(self.settings.tries):
            need = wanted - len(children)
            drawn = parents.take(rng.choice(len(parents), size=need, p=chances))
            mates = parents.take(rng.choice(len(parents), size=need, p=chances))
            rows = self._children(drawn, mates, rng)
            kept = np.flatnonzero(self.graph.fits(rows))
            children = children.joined(Population(rows[kept], drawn.sketches[kept]))
            if len(children) == wanted:
                return children
        return children.joined(parents.take(rng.choice(len(parents), size=wanted - len(children), p=chances)))

    def _children(self, parents: Population, mates: Population, rng: np.random.Generator) -> np.ndarray:
        """Return one child per parent, as rows [B, ROW]: a mutant, a crossover with the mate, or a copy of the parent.

        Children may be illegal programs.
        """
        rows = parents.rows.copy()
        draws = rng.random((len(rows), DRAWS))
        crossed = self.settings.mutation + self.settings.crossover
        for i, sketch in enumerate(parents.sketches.tolist()):
            if draws[i, 0] < self.settings.mutation:
                self._mutate(rows[i], sketch, draws[i, 1:].tolist())
            elif draws[i, 0] < crossed and mates.sketches[i] == sketch:
                self._cross(rows[i], mates.rows[i], sketch, rng)
        return rows

    def _by_kind(self, sketch: Sketch) -> dict[int, list[Column]]:
        """Group a sketch's undecided knobs by the kind of mutation that changes them: tiles, computation location, or pragmas.

        A knob that belongs to neither of the first two kinds counts as a pragma.
        """
        factors, locations = ([KNOB + KNOB_INDEX[n] for n in names] for names in (FACTORS, LOCATIONS))
        kinds: dict[int, list[Column]] = {TILES: [], PRAGMA: [], LOCATION: []}
        for knob in sketch.knobs:
            kinds[TILES if knob.first in factors else LOCATION if knob.first in locations else PRAGMA].append(knob)
        return kinds

    def _chances(self, sketch: int) -> list[float]:
        knobs, axes = self._knobs[sketch], self._axes[sketch]
        there = [bool(axes or knobs[TILES]), bool(axes), bool(knobs[PRAGMA]), bool(knobs[LOCATION])]
        weights = np.where(there, self._weights, 0.0)
        return (np.cumsum(weights) / max(weights.sum(), 1e-300)).tolist()  # type: ignore[no-any-return]

    def _mutate(self, row: np.ndarray, sketch: int, draws: list[float]) -> None:
        """Mutate an encoded program in place; a row that cannot be mutated stays unchanged.

        The random numbers `draws` from [0, 1) choose the kind of mutation, the axis or knob, and its new value.
        """
        kind = bisect_right(self._kinds[sketch], draws[0])
        if kind > LOCATION:
            return
        axes, knobs = self._axes[sketch], self._knobs[sketch].get(kind, [])
        movable = len(axes) if kind in (TILES, GRANULARITY) else 0
        chosen = int(draws[1] * (movable + len(knobs)))
        if chosen < movable:
            self._move_tile(row, sketch, axes[chosen], kind == GRANULARITY, draws)
            return
        knob = knobs[chosen - movable]
        others = knob.values[knob.values[:, 0] != row[knob.first]]
        row[knob.first] = others[int(draws[2] * len(others)), 0]

    def _move_tile(self, row: np.ndarray, sketch: int, axis: int, granularity: bool, draws: list[float]) -> None:
        places = self.sketches[sketch].axes[axis].places
        moved = pick(self._moves[sketch][axis].groups(row[places], granularity), draws[2], draws[3])
        if moved is not None:
            row[places] = moved

    def _cross(self, row: np.ndarray, mate: np.ndarray, sketch: int, rng: np.random.Generator) -> None:
        for column in self.sketches[sketch].movable():
            if rng.random() < 0.5:
                row[column.places] = mate[column.places]
