"""Beam search over incomplete programs on a learned model, which Ansor's paper compares with its evolution (figure 7).

A program is built decision by decision: first the tiles of every axis, then the knobs. Undecided numbers are at their minimum.
After each decision the incomplete programs with the lowest scores are dropped, although the model has learned from complete
programs. Ansor's authors call this the weakness of the method. Order, width and branches are our reconstruction.
"""

from __future__ import annotations

import numpy as np

from agents.ansor.evolution import Population, Score
from agents.ansor.sketches import Sketch
from gensor_gym.construction import ConstructionGraph

WIDTH = 128
"""Number of incomplete programs that are kept after a decision."""
BRANCHES = 16
"""Number of values that are tried for the next decision of each program in the beam.

WIDTH x BRANCHES is the size of a generation of evolution.
"""


class BeamOfSketches:
    """Beam search that starts from sketches (partly decided programs) of a graph and decides one axis or knob at a time."""

    def __init__(self, graph: ConstructionGraph, sketches: list[Sketch]) -> None:
        self.graph = graph
        self._decisions = [sketch.movable() for sketch in sketches]
        self._first = np.stack([_smallest(sketch) for sketch in sketches])

    def construct(self, score: Score, rng: np.random.Generator) -> Population:
        """Run the beam search; return the distinct complete programs that it ends with, highest score first.

        Sketches need different numbers of decisions. A program that is complete stays in the beam unchanged while others are
        completed.
        """
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
        """Return copies of an encoded program [B, ROW], each with another random value of its next undecided column.

        `number` is the index of the program's sketch, `step` the number of decisions made. If nothing is undecided, the only copy
        is the program itself.
        """
        if step >= len(self._decisions[number]):
            return row[None]
        column = self._decisions[number][step]
        return column.only(rng.permutation(len(column.values))[:BRANCHES]).every(row)

    def _legal(self, population: Population) -> Population:
        return population.take(np.flatnonzero(self.graph.fits(population.rows))).new()


def _smallest(sketch: Sketch) -> np.ndarray:
    row = sketch.base.copy()
    for axis in sketch.axes:
        row[axis.places] = axis.values[np.argmin(axis.values.astype(np.int64).sum(axis=1))]
    return row
