"""Monte-Carlo tree search guided by a policy: its probabilities order and weight children, and its critic evaluates leaves.

The search is PUCT as in AlphaZero (Silver et al. 2018), without rollouts, on the tree of `agents.baselines.mcts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from agents.baselines.mcts import Mcts, Node, Search
from agents.learners.guide import Guide
from agents.policies.learned import LearnedWalk
from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import STOP


@dataclass(frozen=True)
class PolicyMcts(LearnedWalk):
    """Monte-Carlo tree search with a policy, from the unscheduled program.

    A simulation ends at a new child, which the critic evaluates. The value of a new child mixes the best time among the programs
    observed there with the critic's estimate.
    """

    simulations: int = 400
    exploration: float = 1.0
    """Weight of prior x sqrt(visits of the parent) / (1 + visits of the child)."""
    widening: float = 2.0
    """A node that was visited n times has at most widening x n^exponent children."""
    exponent: float = 0.5
    critic: float = 0.5
    """Weight of the critic's estimate in the value of a leaf. The best observed time has the remaining weight."""

    def explore(self, graph: ConstructionGraph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """Search in a new tree; return (evaluated and observed programs, their model seconds, number of nodes)."""
        tree = Mcts(self.space, self.simulations, self.exploration, self.widening, self.exponent)
        guide = Guide(*self.policy(graph), graph, self.retain)
        search = GuidedSearch(tree, graph, rng, guide, self.critic)
        for _ in range(self.simulations):
            search.simulate()
        return *guide.programs(), len(search.tree)


class GuidedSearch(Search):
    """A tree search in which a policy gives the priors of children and the values of leaves.

    The policy is evaluated once at each new node.
    """

    def __init__(
        self, settings: Mcts, graph: ConstructionGraph, rng: np.random.Generator, guide: Guide, critic: float
    ) -> None:
        self.guide, self.critic = guide, critic
        self.chances: dict[bytes, np.ndarray] = {}
        """Bytes of an encoded program -> log-probabilities of its actions."""
        super().__init__(settings, graph, rng)

    def first_low(self) -> float:
        """Evaluate the root by the policy; return the log of the best time among the programs observed there."""
        self.leaf(self.root)
        return self.root.low

    def expand(self, node: Node) -> list[Node]:
        """Make nodes for the legal successors of a node that are not in the tree yet, least probable first."""
        if node.depth >= self.graph.horizon - 1:
            return []
        chances = self.chances.pop(node.row.tobytes())
        legal = np.flatnonzero(np.isfinite(chances))
        legal = legal[legal != STOP]
        legal = legal[np.argsort(chances[legal], kind="stable")]
        rows, _ = self.graph.transitions(np.repeat(node.row[None], len(legal), axis=0), legal)
        return [
            Node(row, prior=math.exp(chances[action]), depth=node.depth + 1)
            for row, action in zip(rows, legal, strict=True)
            if row.tobytes() not in self.tree
        ]

    def bound(self, node: Node, child: Node) -> float:
        """Return the PUCT score of a child, by which a simulation chooses: its value plus the exploration term."""
        spread = child.prior * math.sqrt(node.visits) / (1 + child.visits)
        return self.value(child) + self.settings.exploration * spread

    def leaf(self, node: Node) -> float:
        """Evaluate a new node by the policy; return the estimated log of the best latency that can be reached from it."""
        if node.row.tobytes() in self.chances or node.visits:
            return node.low
        answer = self.guide.ask(node.row[None], self.graph.horizon - node.depth)
        self.chances[node.row.tobytes()] = answer.chances[0]
        node.low = math.log(answer.nearest[0])
        hoped = math.log(answer.seconds[0]) - float(answer.values[0])
        return (1 - self.critic) * node.low + self.critic * min(hoped, node.low)
