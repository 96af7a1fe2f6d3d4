"""A message-passing network over the graph observation of `gensor_gym/Fuse-v0`: scores of actions and the value of a state.

Messages go along links and against them, as in the graph networks of Battaglia et al. (arXiv 1806.01261), in plain torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from gymnasium.spaces import GraphInstance
from torch import nn

from gensor_gym.env.planning.features import DECISION, GROUPS, NODE, PART, PlanView
from gensor_gym.env.planning.graph_view import EDGE_FEATURES
from gensor_gym.env.settings import Settings
from gensor_gym.networks.planning.graph import PlanGraph
from gensor_gym.networks.planning.state import NUM_ACTIONS, State

OBSERVED = [name for name in GROUPS if name != "remaining"]
"""Groups of features of the whole plan that the network sees: all but the steps left, which a search's state lacks."""
_OF_NODE = NODE + PART + 2
_WHOLE = sum(GROUPS[name] for name in OBSERVED)
_DECISIONS = _OF_NODE + sum(GROUPS[name] for name in OBSERVED[: OBSERVED.index("decisions")])


class Batch(NamedTuple):
    """Observed graphs of B states, joined to one graph."""

    nodes: torch.Tensor
    """Features of nodes, [V, F]."""
    edges: torch.Tensor
    """Features of edges, [E, EDGE_FEATURES]."""
    links: torch.Tensor
    """First and second node of each edge, int64 [2, E]."""
    plan: torch.Tensor
    """Index of each node's state, int64 [V]."""
    masks: torch.Tensor
    """Actions that may be taken, bool [B, NUM_ACTIONS]."""


def batched(graphs: Sequence[GraphInstance], masks: np.ndarray) -> Batch:
    """Join observed graphs and masks [B, NUM_ACTIONS] of legal actions; `stop` may be taken only if no other action is legal."""
    counts = [len(np.asarray(graph.nodes)) for graph in graphs]
    first = np.cumsum([0, *counts[:-1]])
    links = [np.asarray(graph.edge_links).T + start for graph, start in zip(graphs, first, strict=True)]
    allowed = np.array(masks, bool)
    allowed[:, 0] = ~allowed[:, 1:].any(axis=1)
    return Batch(
        torch.from_numpy(np.concatenate([graph.nodes for graph in graphs])),
        torch.from_numpy(np.concatenate([np.asarray(graph.edges) for graph in graphs])),
        torch.from_numpy(np.concatenate(links, axis=1, dtype=np.int64)),
        torch.from_numpy(np.repeat(np.arange(len(graphs)), counts)), torch.from_numpy(allowed),
    )  # fmt: skip


class GraphPolicy(nn.Module):
    """Network that computes logits of actions and the value of a state, by `rounds` of messages of `width` numbers."""

    def __init__(self, width: int = 32, rounds: int = 2) -> None:
        """Draw the weights from torch's generator."""
        super().__init__()
        self.enter = nn.Linear(_OF_NODE + _WHOLE, width)
        self.edge = nn.Linear(EDGE_FEATURES, width)
        self.along = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.against = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.mixed = nn.ModuleList(nn.Linear(3 * width, width) for _ in range(rounds))
        self.score = nn.Sequential(nn.Linear(3 * width + DECISION + NUM_ACTIONS, width), nn.Tanh(), nn.Linear(width, 1))
        self.worth = nn.Sequential(nn.Linear(width + 2, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (log probabilities of the actions [B, NUM_ACTIONS], values of the states [B])."""
        hidden = torch.tanh(self.enter(batch.nodes))
        source, reader = batch.links
        edge = self.edge(batch.edges)
        for along, against, mixed in zip(self.along, self.against, self.mixed, strict=True):
            sent = _mean(torch.tanh(along(hidden)[source] + edge), reader, len(hidden))
            back = _mean(torch.tanh(against(hidden)[reader] + edge), source, len(hidden))
            hidden = hidden + torch.tanh(mixed(torch.cat([hidden, sent, back], 1)))
        return self._scores(batch, hidden)

    def _scores(self, batch: Batch, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = len(batch.masks)
        last = torch.cumsum(torch.bincount(batch.plan, minlength=count), 0) - 1  # the node of the whole plan
        whole, width = batch.nodes[last], hidden.shape[1]
        ends = [
            torch.zeros(count, width).index_add(0, batch.plan, hidden * batch.nodes[:, place, None])
            for place in (_OF_NODE - 2, _OF_NODE - 1)
        ]
        context = torch.cat([hidden[last], *ends], 1)[:, None].expand(-1, NUM_ACTIONS, -1)
        decisions = whole[:, _DECISIONS : _DECISIONS + NUM_ACTIONS * DECISION].reshape(count, NUM_ACTIONS, DECISION)
        named = torch.eye(NUM_ACTIONS).expand(count, -1, -1)
        logits = self.score(torch.cat([context, decisions, named], 2))[..., 0]
        logits = logits.masked_fill(~batch.masks, -1e9)
        return torch.log_softmax(logits, 1), self.worth(torch.cat([hidden[last], whole[:, _OF_NODE : _OF_NODE + 2]], 1))[:, 0]


def _mean(messages: torch.Tensor, to: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mean [V, W] of the messages [E, W] to each of `count` nodes; 0 without messages."""
    total = torch.zeros(count, messages.shape[1]).index_add(0, to, messages)
    return total / torch.bincount(to, minlength=count).clamp(min=1)[:, None]


@lru_cache(maxsize=1)
def _view() -> PlanView:
    return PlanView(Settings("analytic", "graph", tuple(OBSERVED), 1.0, 0.0, True, "pooled"))


def seen(graph: PlanGraph, state: State) -> GraphInstance:
    """Return the graph observation of a state, cached in the state."""
    if "graph" not in state.known:
        state.known["graph"] = _view().graph_of(graph, state)
    found: GraphInstance = state.known["graph"]
    return found


@torch.no_grad()
def drawn(
    policy: GraphPolicy, graph: PlanGraph, states: Sequence[State], temperature: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw an action for each state by probability^(1 / temperature), int64 [B]; at temperature 0 the most probable action."""
    logs = policy(batched([seen(graph, state) for state in states], np.array([state.mask for state in states])))[0].numpy()
    found: np.ndarray = (logs + temperature * rng.gumbel(size=logs.shape)).argmax(axis=1)
    return found
