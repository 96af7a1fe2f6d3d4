"""Simulated annealing by measurement over the actions of a graph (Kirkpatrick et al., Science 220, 1983)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np

from agents.core.ledger import Ledger
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.schedule import Schedule
from gensor_gym.measure.measurement import Measurement
from gensor_gym.measure.search import Asked, Node, SearchGraph
from gensor_gym.measure.session import SearchSession, Session


class Trials(Protocol[Asked]):
    """A chain's source of measurements: a session, or a `Ledger`, which recognises equal programs without their text."""

    @property
    def trials(self) -> int:
        """Different nodes measured."""

    def measure(self, schedules: Sequence[Asked], /) -> list[Measurement]:
        """Measurements in order; repeated ones are free."""


@dataclass(frozen=True)
class Annealing:
    """Chains of short random walks over legal actions, the end of each measured.

    A slower node is accepted with probability exp(-d / T), d being the difference of the logarithms of times, so that a
    temperature means the same on every task.

    The first chain begins at the best of a few random nodes, later ones alternately at a new random node and at the best
    measured. No model is used. A node is a program of a construction graph, or a configuration of a recorded space.
    """

    space: str = "extended"
    starts: int = 6
    """Nodes drawn uniformly at the beginning, and at every restart from a new one."""
    reach: int = 4
    """Most actions in one step of a chain: another register tile changes everything built on it."""
    hot: float = 0.3
    """Temperature at the start of a chain: a node 1.35 times slower is accepted one time in three."""
    cold: float = 0.02
    """Temperature at its end."""
    steps: int = 48
    """New trials over which the temperature falls, geometrically; then the chain ends."""
    patience: int = 60
    """Steps in a row without a new trial, after which a chain ends: its neighbourhood is known.

    In a recorded space, as many chains in a row without a new trial end the search.
    """

    def __post_init__(self) -> None:
        """ValueError names a value that no chain could have."""
        for name in ("starts", "reach", "steps", "patience"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}: expected a whole number, 1 or more")
        if not self.hot >= self.cold > 0:
            raise ValueError(f"hot={self.hot}, cold={self.cold}: expected hot >= cold > 0")

    def search(self, session: SearchSession[Node], rng: np.random.Generator) -> None:
        """Chain after chain until the budget is spent, every program measured, or nothing new met in a recorded space."""
        if isinstance(session, Session) and isinstance(session.graph, ConstructionGraph):
            ledger = Ledger(session)
            self._anneal(session.graph, ledger, self._programs(ledger, rng), rng)
        else:
            self._anneal(session.graph, session, self._configurations(session, rng), rng)

    def _programs(self, ledger: Ledger, rng: np.random.Generator) -> Iterator[list[Schedule]]:
        """Starts of chains on a construction graph: unmeasured programs, drawn for every chain."""
        for chain in count():
            best, before = ledger.session.best, ledger.trials
            if not (drawn := ledger.walked(rng, self.starts)):
                return
            yield [best[0]] if chain % 2 and best is not None else drawn
            if ledger.trials == before:  # a chain that knew all around it is no search: something new, then
                ledger.measure(drawn[:1])

    def _configurations(self, session: SearchSession[Node], rng: np.random.Generator) -> Iterator[list[Node]]:
        """Starts of chains in a recorded space: any configurations, measured before or not."""
        chains = idle = 0
        while idle < self.patience:
            best, before = session.best, session.trials
            if chains % 2 and best is not None:
                yield [best[0]]
            else:
                yield [session.graph.random_schedule(rng) for _ in range(self.starts)]
            chains, idle = chains + 1, idle + 1 if session.trials == before else 0

    def _anneal(
        self, graph: SearchGraph[Node], known: Trials[Node], starts: Iterator[list[Node]], rng: np.random.Generator
    ) -> None:
        """One chain from the fastest of each of the lists."""
        for drawn in starts:
            seconds = [found.seconds for found in known.measure(drawn)]
            self._chain(graph, known, drawn[int(np.argmin(seconds))], min(seconds), rng)

    def _chain(
        self, graph: SearchGraph[Node], known: Trials[Node], node: Node, seconds: float, rng: np.random.Generator
    ) -> None:
        """One chain from a measured node."""
        begin, idle = known.trials, 0
        while (used := known.trials - begin) < self.steps and idle < self.patience:
            after, before = graph.random_schedule(rng, int(rng.integers(1, self.reach + 1)), node), known.trials
            found = known.measure([after])[0].seconds
            idle = 0 if known.trials > before else idle + 1
            temperature = self.hot * (self.cold / self.hot) ** (used / self.steps)
            if accepts(seconds, found, temperature, float(rng.random())):
                node, seconds = after, found


def accepts(now: float, after: float, temperature: float, draw: float) -> bool:
    """Metropolis' rule on log seconds; `draw` is uniform in [0, 1). Failures are accepted from failures alone."""
    if after <= now:
        return True
    return math.isfinite(after) and draw < math.exp(-math.log(after / now) / temperature)
