"""Observation `graph` of a plan, for graph neural networks: the network's nodes linked to their readers, and the whole plan."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.spaces import GraphInstance

from gensor_gym.env.graph_view import box
from gensor_gym.networks.planning.graph import PlanGraph
from gensor_gym.networks.planning.state import State

EDGE_FEATURES = 3
"""Number of edge features: whether both nodes are in one piece, whether the cursor is at it, whether it starts at the plan."""


class PlanGraphView:
    """Turns features of a plan into a graph observation.

    Nodes: the network's nodes that need a kernel, in the network's order, and a node for the whole plan. Features, float32, of a
    network's node: features of the node and of its piece, and whether the cursor is at a link that begins, or ends, at this node.
    Features of the plan: the flat observation. Edges: (node, reader), and (plan, node) for every node.
    """

    def __init__(self, whole: int, node: int, part: int) -> None:
        """Define the graph's observation space from the numbers of features of the plan, of a node and of a piece."""
        self._of_node = node + part + 2
        self.space = gymnasium.spaces.Graph(box(self._of_node + whole), box(EDGE_FEATURES))

    def of(self, whole: np.ndarray, nodes: np.ndarray, parts: np.ndarray, graph: PlanGraph, state: State) -> GraphInstance:
        """Return the graph of a state from features of the plan [W], of the nodes [V, N] and of their pieces [V, P], float32."""
        count, link = len(nodes), graph.link_of(state)
        found = np.zeros((count + 1, self._of_node + len(whole)), np.float32)
        found[:count, : self._of_node - 2] = np.concatenate([nodes, parts], axis=1)
        if link is not None:
            found[link[0], self._of_node - 2] = found[link[1], self._of_node - 1] = 1.0
        found[count, self._of_node :] = whole
        part_of = state.part_of
        inside = [(float(part_of[one] is part_of[reader]), float((one, reader) == link), 0.0) for one, reader in graph.links]
        features = np.array([*inside, *[(0.0, 0.0, 1.0)] * count], np.float32)
        links = np.array([*graph.links, *((count, node) for node in range(count))], np.int32)
        return GraphInstance(nodes=found, edges=features, edge_links=links)
