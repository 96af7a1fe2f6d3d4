"""Droplet search: coordinate descent by measurement from a good start (Canesche et al.).

Sources: AutoTVM's `droplet_tuner.py`; notes on "Explore as a Storm, Exploit as a Raindrop" (arXiv 2406.20037). Of them:
descent along the coordinates of a configuration, a batch measured at a time, filled by speculation with points further along;
a point is accepted when its mean is smaller and the t-test says so (p = 0.05); the search ends when no neighbour is better.
Ours: the start (programs that Roller's rules construct, the best by measurement; AutoTVM begins at the first configuration
unless told), coordinates (a place of a column, see `agents.core.programs`, one at a time and no diagonals), speculation along the
direction that helped last, and further descents from random programs while there is budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agents.baselines.roller import Roller
from agents.core.ledger import Ledger
from agents.core.programs import Direction, Programs
from agents.core.significance import is_faster
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class Droplet:
    """The descent. No model is asked."""

    space: str = "extended"
    starts: int = 4
    """Programs of Roller's rules that are measured; the best is the start. Restarts use random programs."""
    batch: int = 8
    """Neighbours measured at a time (16 in the source, where the devices are many)."""
    reach: int = 3
    """Largest speculative distance along one number."""
    level: float = 0.05
    """Level of the test."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Descend, then again from random programs until the budget is spent or every program measured."""
        ledger = Ledger(session)
        starts = self._by_rule(ledger) or ledger.walked(rng, self.starts)
        while starts:
            vector, best = self._best(ledger, starts)
            self._descend(ledger, vector, best, rng)
            starts = ledger.walked(rng, self.starts)

    def _by_rule(self, ledger: Ledger) -> list[Schedule]:
        """The first programs of Roller's construction that this space has."""
        graph = ledger.session.graph
        rows, _ = Roller(top_k=self.starts).rows(graph)
        found = [Schedule(row) for row in rows]
        return [s for s in found if graph.is_legal(s) and ledger.programs.vector(s) is not None]

    def _best(self, ledger: Ledger, starts: list[Schedule]) -> tuple[np.ndarray, Measurement]:
        """The fastest start."""
        measured = ledger.measure(starts)
        at = int(np.argmin([m.seconds for m in measured]))
        vector = ledger.programs.vector(starts[at])
        assert vector is not None
        return vector, measured[at]

    def _descend(self, ledger: Ledger, vector: np.ndarray, best: Measurement, rng: np.random.Generator) -> None:
        """Batches of neighbours until none is faster."""
        lucky: list[Direction] = []
        while True:
            faster = None
            for batch in self._batches(ledger, vector, lucky, rng):
                schedules = [ledger.programs.schedule(v) for v, _ in batch]
                for (v, way), found in zip(batch, ledger.measure(schedules), strict=False):
                    if is_faster(found.samples, best.samples, self.level):
                        best, faster = found, (v, way)
                if faster is not None:
                    break
            if faster is None:
                return
            vector, (column, place, steps) = faster
            lucky = [(column, place, int(np.sign(steps)) * n) for n in range(1, self.reach + 1)]

    def _batches(
        self, ledger: Ledger, vector: np.ndarray, lucky: list[Direction], rng: np.random.Generator
    ) -> Iterator[list[tuple[np.ndarray, Direction]]]:
        """Legal neighbours in batches: where it helped last, then all next ones in random order, then further ones."""
        programs = ledger.programs
        ways = list(lucky)
        for steps in range(1, self.reach + 1):
            ring = _ring(programs, steps)
            ways += [ring[i] for i in rng.permutation(len(ring))]
        seen: set[bytes] = set()
        batch: list[tuple[np.ndarray, Direction]] = []
        new = 0
        for number, way in enumerate(ways):
            if number >= len(lucky) and abs(way[2]) > 1 and not new:
                break  # further ones only fill a batch: all next ones are known to be slower
            moved = programs.moved(vector, way)
            if moved is None or moved.tobytes() in seen or not programs.legal(moved[None])[0]:
                continue
            seen.add(moved.tobytes())
            batch.append((moved, way))
            new += programs.schedule(moved) not in ledger
            if new == self.batch:
                yield batch
                batch, new = [], 0
        if batch:
            yield batch


def _ring(programs: Programs, steps: int) -> list[Direction]:
    """All directions at that distance."""
    return [(column, place, sign * steps) for column, place in programs.places for sign in (1, -1)]
