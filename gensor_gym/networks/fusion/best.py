"""The cheapest plan of a network by the models, with its proof.

Dynamic programming covers the nodes with pieces in the graph's order. A state is a set of covered nodes. For each state the
dynamic program finds the least cost of covering the other nodes, if pieces may wait for each other in a circle. This cost is the
bound of a best-first search that yields covers in the order of their cost: the first cover without a circle is the optimum.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.fusion.candidates import Candidate, TooMany, candidates
from gensor_gym.networks.fusion.dependences import Dependences
from gensor_gym.networks.fusion.fine import fine
from gensor_gym.networks.fusion.prices import Prices
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan, ordered

MOST_STATES, MOST_TRIED = 1 << 19, 1 << 14
"""Most states of the dynamic program, and most partial plans that the search takes up; beyond them nothing is certified."""
SECONDS = 60.0
"""Most processor seconds that pricing all pieces takes in `best_plan` and in `PlanGraph.best`."""


@dataclass(frozen=True)
class Optimum:
    """A cheapest plan with its seconds, and the size of the proof that no plan is cheaper."""

    plan: Plan
    seconds: float
    pieces: int
    """Number of legal pieces."""
    states: int
    """Number of states of the dynamic program."""
    tried: int
    """Number of covers of the nodes that the search reached, including those whose pieces form no plan."""


def optimum(
    network: Network, hardware: Hardware, of: Dependences | None = None, prices: Prices | None = None, seconds: float = math.inf
) -> Optimum:
    """Return the cheapest plan with its proof.

    TooMany if the network is too large for a proof, or pricing its pieces takes more than `seconds` of processor time. ValueError
    if a node has no kernel of its own.
    """
    for found in ranked(network, hardware, of, prices, seconds):
        return found
    raise ValueError(f"{network} on {hardware.name}: no plan, expected a kernel for each of its nodes")


def ranked(
    network: Network, hardware: Hardware, of: Dependences | None = None, prices: Prices | None = None, seconds: float = math.inf
) -> Iterator[Optimum]:
    """Yield legal plans in the order of their seconds, each set of nodes at its cheapest anchor; TooMany as in `optimum`."""
    until = time.process_time() + seconds
    of, prices = of or Dependences(network), prices or Prices(network, hardware)
    found = candidates(of, prices, until)
    program = _Covers(of, found)
    for tried, (cost, chosen) in enumerate(program.covers(), 1):
        plan = ordered(network, [one.piece for one in chosen])
        if plan is not None and not plan.fault:
            yield Optimum(plan, cost, len(found), len(program.left), tried)


def best_plan(network: Network, hardware: Hardware) -> Plan:
    """Return the cheapest plan, or plan `fine` if the network is too large for a proof, or the proof takes over `SECONDS`."""
    try:
        return optimum(network, hardware, seconds=SECONDS).plan
    except TooMany:
        return fine(network, hardware)


class _Covers:
    """Covers: sets of pieces that compute each node once."""

    def __init__(self, of: Dependences, found: list[Candidate]) -> None:
        self.of, self.whole = of, (1 << len(of.names)) - 1
        self.beginning: dict[int, list[Candidate]] = {}
        """First node of a piece, as a set -> the pieces."""
        for one in found:
            self.beginning.setdefault(one.nodes & -one.nodes, []).append(one)
        self.left = self._costs()
        """Set of covered nodes -> least seconds of pieces that cover all others."""

    def following(self, covered: int) -> Iterator[tuple[Candidate, int]]:
        """Yield (piece, nodes covered with it) for all pieces that cover the first uncovered node and no covered node."""
        first = ~covered & (covered + 1)
        for one in self.beginning.get(first, ()):
            if not one.nodes & covered:
                yield one, covered | one.nodes

    def _costs(self) -> dict[int, float]:
        reached = {0}
        waiting = [0]
        while waiting:
            covered = waiting.pop()
            for _, after in self.following(covered) if covered != self.whole else ():
                if after not in reached:
                    reached.add(after)
                    waiting.append(after)
            if len(reached) > MOST_STATES:
                raise TooMany(f"{self.of.network}: more than {MOST_STATES} states, expected fewer for an optimum")
        costs = {self.whole: 0.0}
        for covered in sorted(reached, key=int.bit_count, reverse=True):
            if covered != self.whole:
                costs[covered] = min((one.seconds + costs[after] for one, after in self.following(covered)), default=math.inf)
        return costs

    def covers(self) -> Iterator[tuple[float, list[Candidate]]]:
        """Yield (seconds, pieces) of covers without circular waits, cheapest first; TooMany after `MOST_TRIED` partial covers."""
        number = itertools.count()
        waiting: list[tuple[float, int, float, int, tuple[Candidate, ...]]] = [(self.left[0], next(number), 0.0, 0, ())]
        for _ in range(MOST_TRIED):
            if not waiting or waiting[0][0] == math.inf:
                return
            bound, _, spent, covered, chosen = heapq.heappop(waiting)
            if covered == self.whole:
                yield bound, list(chosen)
                continue
            for one, after in self.following(covered):
                some = (*chosen, one)
                if self.of.is_ordered(each.nodes for each in some):
                    cost = spent + one.seconds
                    heapq.heappush(waiting, (cost + self.left[after], -len(some) * (1 << 32) + next(number), cost, after, some))
        raise TooMany(f"{self.of.network}: more than {MOST_TRIED} partial plans, expected fewer for an optimum")
