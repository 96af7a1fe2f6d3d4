"""Monte-Carlo tree search over the construction graph, with values by the analytic model (UCT, Kocsis and Szepesvari 2006).

A node is a program and an edge is an action. Children are added by progressive widening (Coulom 2007; Chaslot et al. 2008).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np

from agents.baselines.beam import successors
from agents.core.ranking import Constructing, Construction, measure_rankings, ranked
from gensor_gym.construction import ConstructionGraph
from gensor_gym.measure.session import Session


@dataclass(frozen=True)
class Mcts(Constructing):
    """Tree search from the unscheduled program. All visited programs are ranked by the model and measured in that order.

    A simulation descends by upper confidence bounds, adds a child, and walks from it at random. Then it moves to the best
    neighbour as long as that is faster. The value of a simulation is the log of the best latency on its way, on a scale from 0
    (the unscheduled program) to 1 (the best so far). The value of a node is the mean over its simulations.
    """

    space: str = "extended"
    simulations: int = 400
    """Number of simulations in one tree. A new tree begins when all programs that the last tree visited are measured."""
    exploration: float = 0.5
    """Weight of the confidence bound's exploration term."""
    widening: float = 2.0
    """A node that was visited n times has at most widening x n^exponent children."""
    exponent: float = 0.5
    walk: int = 16
    """Maximum number of actions in the random part of a rollout."""
    climb: int = 12
    """Maximum number of steps in the greedy part of a rollout."""
    per_register_tile: int = 2
    """Number of programs of each register tile to measure first; all other programs of the ranking follow."""

    def search(self, session: Session, rng: np.random.Generator) -> None:
        """Run simulations and measure their programs, until the budget is spent or no new program is visited."""
        measure_rankings(self.construct, session, rng, self.per_register_tile)

    def construct(self, graph: ConstructionGraph, rng: np.random.Generator) -> Construction:
        """Run simulations in a new tree; return all visited programs, ranked by the model."""
        begin, before = time.perf_counter(), graph.evaluations
        search = Search(self, graph, rng)
        for _ in range(self.simulations):
            search.simulate()
        rows = np.frombuffer(b"".join(search.visited), dtype=np.int32).reshape(len(search.visited), -1)
        schedules, latencies = ranked(rows, np.fromiter(search.visited.values(), float), graph)
        return Construction(schedules, latencies, len(rows), graph.evaluations - before, time.perf_counter() - begin)


@dataclass
class Node:
    """A node of the search tree: a program and its statistics.

    Programs in `untried` become children from the last to the first.
    """

    row: np.ndarray
    low: float = math.inf
    """Log of the latency in seconds of the node's program, or of the best known program near it."""
    prior: float = 1.0
    depth: int = 0
    untried: list[Node] | None = None
    children: list[Node] = field(default_factory=list)
    visits: int = 0
    total: float = 0.0


class Search:
    """A Monte-Carlo tree search in one tree.

    A subclass may order, bound and value children differently (see `agents.policies.policy_mcts`).
    """

    def __init__(self, settings: Mcts, graph: ConstructionGraph, rng: np.random.Generator) -> None:
        self.settings, self.graph, self.rng = settings, graph, rng
        self.visited: dict[bytes, float] = {}
        """Bytes of an encoded program -> model seconds, for all evaluated programs."""
        self.root = Node(graph.initial().row)
        self.tree = {self.root.row.tobytes()}
        self.root.low = self.first_low()
        self.worst = self.best = self.root.low

    def simulate(self) -> None:
        """Run one simulation: descend, add a child, roll out, and add the value to all nodes of the path."""
        path = [self.root]
        while True:
            child, added = self._next(path[-1])
            if child is None:
                break
            path.append(child)
            if added:
                break
        low = min(self.leaf(path[-1]), *(node.low for node in path))
        self.best = min(self.best, low)
        for node in path:
            node.visits += 1
            node.total += low

    def _next(self, node: Node) -> tuple[Node | None, bool]:
        if node.untried is None:
            node.untried = self.expand(node)
            self.tree.update(child.row.tobytes() for child in node.untried)
        limit = self.settings.widening * max(1, node.visits) ** self.settings.exponent
        if node.untried and len(node.children) < limit:
            node.children.append(node.untried.pop())
            return node.children[-1], True
        if not node.children:
            return None, False
        return max(node.children, key=lambda child: self.bound(node, child)), False

    def first_low(self) -> float:
        """Return the log of the latency of the root's program."""
        return math.log(self._latencies(self.root.row[None])[0])

    def expand(self, node: Node) -> list[Node]:
        """Make nodes for the successors of a node that are not in the tree yet; the last of the list is tried first.

        They are sorted by the model's latency with random noise, slowest first.
        """
        rows = successors(self.graph, node.row[None])
        fresh = [row for row in rows if row.tobytes() not in self.tree]
        lows = np.log(self._latencies(np.array(fresh, dtype=np.int32).reshape(len(fresh), rows.shape[1])))
        order = np.argsort(-(lows + 0.3 * self.rng.standard_normal(len(fresh))), kind="stable")
        return [Node(fresh[i], float(lows[i]), depth=node.depth + 1) for i in order]

    def bound(self, node: Node, child: Node) -> float:
        """Return the upper confidence bound of a child's value, by which a simulation chooses among children."""
        if not child.visits:
            return math.inf
        return self.value(child) + self.settings.exploration * math.sqrt(math.log(node.visits) / child.visits)

    def value(self, node: Node) -> float:
        """Return the mean value of the node's simulations, from 0 for the root's program to 1 for the best program so far."""
        return (self.worst - node.total / node.visits) / max(self.worst - self.best, 1e-9)

    def leaf(self, node: Node) -> float:
        """Run a rollout from a node; return the log of the best latency in it.

        The rollout is a random walk, followed by steps to the best neighbour until all neighbours are slower.
        """
        steps = int(self.rng.integers(0, self.settings.walk + 1))
        now = self.graph.random_schedule(self.rng, steps, self.graph.schedule(node.row)).row[None]
        best = float(self._latencies(now)[0])
        for _ in range(self.settings.climb):
            after = successors(self.graph, now)
            times = self._latencies(after)
            if not len(after) or times.min() > best:
                break
            now, best = after[[int(np.argmin(times))]], float(times.min())
        return math.log(best)

    def _latencies(self, rows: np.ndarray) -> np.ndarray:
        """Evaluate encoded programs `rows` [B, ROW] by the model and remember them; return their model seconds [B]."""
        seconds = self.graph.latencies(rows)
        self.visited.update(zip((row.tobytes() for row in rows), seconds.tolist(), strict=True))
        return seconds
