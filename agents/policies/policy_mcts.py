"""Monte-Carlo tree search that a policy guides: its probabilities order and weigh children, its critic values leaves.

PUCT as in AlphaZero (Silver et al. 2018), without rollouts, on the tree of `agents.baselines.mcts`.
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
    """Simulations from the unscheduled program. A simulation ends at a new child, which the critic evaluates.

    The value of a node is the time of the best program observed from it, or the critic's estimate.
    """

    simulations: int = 400
    exploration: float = 1.0
    """Weight of prior x sqrt(visits of the parent) / (1 + visits of the child)."""
    widening: float = 2.0
    """A node visited n times has at most widening x n^exponent children."""
    exponent: float = 0.5
    critic: float = 0.5
    """Share of the critic in the value of a leaf; the rest is the best program observed from there."""

    def explore(self, graph: ConstructionGraph, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
        """Programs evaluated and observed in a new tree."""
        tree = Mcts(self.space, self.simulations, self.exploration, self.widening, self.exponent)
        guide = Guide(*self.policy(graph), graph, self.retain)
        search = GuidedSearch(tree, graph, rng, guide, self.critic)
        for _ in range(self.simulations):
            search.simulate()
        return *guide.programs(), len(search.tree)


class GuidedSearch(Search):
    """A tree whose children and values come from a policy. A node is asked about once, when it becomes a child."""

    def __init__(
        self, settings: Mcts, graph: ConstructionGraph, rng: np.random.Generator, guide: Guide, critic: float
    ) -> None:
        """A root, asked about."""
        self.guide, self.critic = guide, critic
        self.chances: dict[bytes, np.ndarray] = {}
        """Log-probabilities of actions by row."""
        super().__init__(settings, graph, rng)

    def first_low(self) -> float:
        """The root's best time so far."""
        self.leaf(self.root)
        return self.root.low

    def expand(self, node: Node) -> list[Node]:
        """Successors that the tree does not hold, the least probable first."""
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
        """PUCT."""
        spread = child.prior * math.sqrt(node.visits) / (1 + child.visits)
        return self.value(child) + self.settings.exploration * spread

    def leaf(self, node: Node) -> float:
        """Ask about a new node; log of the latency that may be reached from it."""
        if node.row.tobytes() in self.chances or node.visits:
            return node.low
        answer = self.guide.ask(node.row[None], self.graph.horizon - node.depth)
        self.chances[node.row.tobytes()] = answer.chances[0]
        node.low = math.log(answer.nearest[0])
        hoped = math.log(answer.seconds[0]) - float(answer.values[0])
        return (1 - self.critic) * node.low + self.critic * min(hoped, node.low)
