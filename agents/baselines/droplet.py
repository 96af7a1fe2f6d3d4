"""Droplet search: coordinate descent by measurement from a good start (Canesche et al.).

Sources are AutoTVM's `droplet_tuner.py` and notes on "Explore as a Storm, Exploit as a Raindrop" (arXiv 2406.20037). The descent
along the coordinates of a configuration is theirs. The descent measures batches of neighbours, filled up by speculation with
farther points. A point is accepted if its mean is smaller and a t-test is significant (p = 0.05). A descent ends if no neighbour
is better.

Four parts are ours. The start is the fastest measured program of Roller's rules (in AutoTVM the first configuration). A
coordinate is one position of a column (`agents.core.programs`), without diagonals. Speculation follows the last successful
direction. While there is budget, further descents start from random programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agents.core.ledger import Ledger
from agents.core.programs import Direction, Programs
from agents.core.significance import is_faster
from agents.roller.roller import Roller
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class Droplet:
    """Coordinate descent by measurement, from the best of the programs that Roller's rules construct. No model is used."""

    space: str = "extended"
    starts: int = 4
    """Number of programs of Roller's rules that are measured; the first descent starts at the best.

    Later descents measure random programs instead.
    """
    batch: int = 8
    """Number of neighbours per batch of measurements (16 in the source, for several devices)."""
    reach: int = 3
    """Largest distance of neighbours that are measured speculatively, in steps of one number of a program."""
    level: float = 0.05
    """Significance level of the t-test."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Descend from the best of Roller's programs, then from random programs.

        The search ends when the budget is spent or every program is measured.
        """
        ledger = Ledger(session)
        starts = self._by_rule(ledger) or ledger.walked(rng, self.starts)
        while starts:
            vector, best = self._best(ledger, starts)
            self._descend(ledger, vector, best, rng)
            starts = ledger.walked(rng, self.starts)

    def _by_rule(self, ledger: Ledger) -> list[Schedule]:
        graph = ledger.session.graph
        rows, _ = Roller(top_k=self.starts).rows(graph)
        found = [Schedule(row) for row in rows]
        return [s for s in found if graph.is_legal(s) and ledger.programs.vector(s) is not None]

    def _best(self, ledger: Ledger, starts: list[Schedule]) -> tuple[np.ndarray, Measurement]:
        measured = ledger.measure(starts)
        at = int(np.argmin([m.seconds for m in measured]))
        vector = ledger.programs.vector(starts[at])
        assert vector is not None
        return vector, measured[at]

    def _descend(self, ledger: Ledger, vector: np.ndarray, best: Measurement, rng: np.random.Generator) -> None:
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
        """Yield batches of (legal vector, direction) around `vector` to be measured together.

        First come the directions `lucky`, then all directions at distance 1, then farther ones. Directions of equal distance come
        in random order.
        """
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
                break  # farther neighbours only fill up a batch; here all nearest neighbours are known to be slower
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
    return [(column, place, sign * steps) for column, place in programs.places for sign in (1, -1)]
