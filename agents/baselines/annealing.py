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
    """Interface for measuring the programs of an annealing chain: a session, or a `Ledger`.

    A ledger recognises equal programs without generating their code.
    """

    @property
    def trials(self) -> int:
        """Number of distinct programs or configurations that were measured."""

    def measure(self, schedules: Sequence[Asked], /) -> list[Measurement]:
        """Measure programs or configurations in order; those that were measured before cost no trial."""


@dataclass(frozen=True)
class Annealing:
    """Simulated annealing by measurement: each step of a chain is a short random walk over legal actions.

    A slower program is accepted with probability exp(-d / T), where d is the difference of the logarithms of times. A temperature
    therefore means the same on every task. The first chain begins at the best of a few random programs. Later chains begin
    alternately at the best measured program and at the best of a few random programs. No model is used. In a recorded space,
    configurations take the place of programs.
    """

    space: str = "extended"
    starts: int = 6
    """Number of random programs that are measured before a chain; the chain begins at the best of them."""
    reach: int = 4
    """Maximum number of actions in one step of a chain. Several help, because outer tiles depend on the register tile."""
    hot: float = 0.3
    """Temperature at the start of a chain. There, a program that is 1.35 times slower is accepted with probability 1 / e."""
    cold: float = 0.02
    """Temperature at the end of a chain."""
    steps: int = 48
    """Number of new trials of a chain; over them the temperature decreases geometrically."""
    patience: int = 60
    """Number of consecutive steps without a new trial after which a chain ends, because its neighbourhood is known.

    In a recorded space it is also the number of consecutive chains without a new trial after which the search ends.
    """

    def __post_init__(self) -> None:
        for name in ("starts", "reach", "steps", "patience"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}: expected a whole number, 1 or more")
        if not self.hot >= self.cold > 0:
            raise ValueError(f"hot={self.hot}, cold={self.cold}: expected hot >= cold > 0")

    def search(self, session: SearchSession[Node], rng: np.random.Generator) -> None:
        """Run annealing chains until the budget is spent or every program is measured.

        In a recorded space the search also ends after `patience` chains without a new trial.
        """
        if isinstance(session, Session) and isinstance(session.graph, ConstructionGraph):
            ledger = Ledger(session)
            self._anneal(session.graph, ledger, self._programs(ledger, rng), rng)
        else:
            self._anneal(session.graph, session, self._configurations(session, rng), rng)

    def _programs(self, ledger: Ledger, rng: np.random.Generator) -> Iterator[list[Schedule]]:
        """Yield the programs from which each chain starts on a construction graph: random unmeasured ones, or the best."""
        for chain in count():
            best, before = ledger.session.best, ledger.trials
            if not (drawn := ledger.walked(rng, self.starts)):
                return
            yield [best[0]] if chain % 2 and best is not None else drawn
            if ledger.trials == before:  # measure a random program, so that every chain has a new trial
                ledger.measure(drawn[:1])

    def _configurations(self, session: SearchSession[Node], rng: np.random.Generator) -> Iterator[list[Node]]:
        """Yield the configurations from which each chain starts in a recorded space: random ones (even if known), or the best."""
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
        for drawn in starts:
            seconds = [found.seconds for found in known.measure(drawn)]
            self._chain(graph, known, drawn[int(np.argmin(seconds))], min(seconds), rng)

    def _chain(
        self, graph: SearchGraph[Node], known: Trials[Node], node: Node, seconds: float, rng: np.random.Generator
    ) -> None:
        begin, idle = known.trials, 0
        while (used := known.trials - begin) < self.steps and idle < self.patience:
            after, before = graph.random_schedule(rng, int(rng.integers(1, self.reach + 1)), node), known.trials
            found = known.measure([after])[0].seconds
            idle = 0 if known.trials > before else idle + 1
            temperature = self.hot * (self.cold / self.hot) ** (used / self.steps)
            if accepts(seconds, found, temperature, float(rng.random())):
                node, seconds = after, found


def accepts(now: float, after: float, temperature: float, draw: float) -> bool:
    """Return whether Metropolis' rule accepts the step from a program of `now` seconds to one of `after` seconds.

    The rule compares log seconds; `draw` is a uniform random number in [0, 1). A failed program, whose seconds are infinite, is
    accepted only if the current program failed too.
    """
    if after <= now:
        return True
    return math.isfinite(after) and draw < math.exp(-math.log(after / now) / temperature)
