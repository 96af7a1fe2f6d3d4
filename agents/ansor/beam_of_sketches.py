"""Beam search over incomplete programs on a learned model: Ansor's baseline for its evolution (its figure 7).

A program is built decision by decision, first the tiles of every axis, then the knobs; undecided numbers are at their minimum.
After each decision the incomplete programs with the lowest scores are dropped, although the model learned from complete ones:
Ansor's authors name that as the fault of the method. Order, width and branches are our reconstruction.
"""

from __future__ import annotations

import numpy as np

from agents.ansor.evolution import Population, Score
from agents.ansor.sketches import Sketch
from gensor_gym.construction import ConstructionGraph

WIDTH = 128
"""Incomplete programs that are kept."""
BRANCHES = 16
"""Values tried for a decision of one program; with WIDTH, as many programs are scored as in an evolution's generation."""


class BeamOfSketches:
    """Builds programs of the sketches of a graph."""

    def __init__(self, graph: ConstructionGraph, sketches: list[Sketch]) -> None:
        """List the decisions of each sketch."""
        self.graph = graph
        self._decisions = [sketch.movable() for sketch in sketches]
        self._first = np.stack([_smallest(sketch) for sketch in sketches])

    def construct(self, score: Score, rng: np.random.Generator) -> Population:
        """Distinct complete programs after the last decision, best first; those of sketches with fewer decisions too."""
        beam = Population(self._first, np.arange(len(self._first)))
        for step in range(max(map(len, self._decisions))):
            rows, numbers = [], []
            for row, number in zip(beam.rows, beam.sketches.tolist(), strict=True):
                after = self._decided(row, number, step, rng)
                rows.append(after)
                numbers.append(np.full(len(after), number))
            beam = self._legal(Population(np.concatenate(rows), np.concatenate(numbers)))
            if not len(beam):
                break
            scores = score(beam.rows)
            last = step + 1 == max(map(len, self._decisions))
            order = np.argsort(-scores, kind="stable")
            beam = beam.take(order if last else order[:WIDTH])
        return self._legal(beam)

    def _decided(self, row: np.ndarray, number: int, step: int, rng: np.random.Generator) -> np.ndarray:
        """The row with some values of its next decision [B, ROW]; itself if there is none left."""
        if step >= len(self._decisions[number]):
            return row[None]
        column = self._decisions[number][step]
        return column.only(rng.permutation(len(column.values))[:BRANCHES]).every(row)

    def _legal(self, population: Population) -> Population:
        """Different programs that fit the hardware, in order."""
        return population.take(np.flatnonzero(self.graph.fits(population.rows))).new()


def _smallest(sketch: Sketch) -> np.ndarray:
    """The row [ROW] with the smallest tiles of every axis."""
    row = sketch.base.copy()
    for axis in sketch.axes:
        row[axis.places] = axis.values[np.argmin(axis.values.astype(np.int64).sum(axis=1))]
    return row
