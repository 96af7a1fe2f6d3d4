"""Features of a plan under decision: plan, steps left, the two nodes at the cursor with their pieces, and each decision."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import GraphInstance

from gensor_gym.dataflow.nodes import Contract, Map, Node, Reduce
from gensor_gym.env.graph_view import box
from gensor_gym.env.observation import LIMIT
from gensor_gym.env.planning.graph_view import PlanGraphView
from gensor_gym.env.settings import Settings, kept_slices
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.pieces import ANCHORS
from gensor_gym.networks.planning.graph import PlanGraph
from gensor_gym.networks.planning.state import NUM_ACTIONS, Part, State

KINDS: tuple[type[Node], ...] = (Contract, Map, Reduce)
"""Kinds of nodes; all others move elements."""
NODE, PART = len(KINDS) + 1 + 3, len(ANCHORS) + 3
"""Number of features of a node: one hot of its kind, log elements, number of readers, whether it is an output of the network.

Number of features of a piece (`Part`): one hot of its anchor, log nodes, log share of the plan's seconds, log microseconds.
"""
DECISION = 3
"""Number of features of a decision: legality, log(seconds of the joined pieces before / after), this log for the whole plan."""
GROUPS = {
    "plan": 5, "remaining": 2, "source": NODE + PART, "reader": NODE + PART, "decisions": NUM_ACTIONS * DECISION, "hardware": 4,
}  # fmt: skip
"""Group of features -> number of its features, in order."""
NUM_FEATURES = sum(GROUPS.values())
_ENDS = np.cumsum(list(GROUPS.values()))
SLICES = {name: slice(int(end) - size, int(end)) for (name, size), end in zip(GROUPS.items(), _ENDS, strict=True)}
NUM_SUCCESSOR_FEATURES = DECISION + NUM_ACTIONS
"""Number of features of the state that an action leads to: those of its decision, and one hot of the action."""


def node_features(graph: PlanGraph) -> np.ndarray:
    """Return the features of all nodes of a network, float32 [V, NODE], cached in the graph."""
    if "nodes" not in graph.known:
        graph.known["nodes"] = _nodes(graph)
    found: np.ndarray = graph.known["nodes"]
    return found


def _nodes(graph: PlanGraph) -> np.ndarray:
    found = np.zeros((len(graph.of.names), NODE), np.float32)
    for place, name in enumerate(graph.of.names):
        node = graph.operator.nodes[name]
        found[place, next((at for at, kind in enumerate(KINDS) if isinstance(node, kind)), len(KINDS))] = 1.0
        elements = math.prod(graph.operator.graph.values[name].shape)
        ends = name in graph.operator.graph.returns
        found[place, len(KINDS) + 1 :] = math.log2(elements) / 8.0, graph.of.readers[place].bit_count() / 4.0, ends
    return found


def part_features(part: Part, seconds: float) -> list[float]:
    """Return the features [PART] of a piece of a plan; `seconds` is the time of the whole plan."""
    anchor = [float(part.piece.anchor == name) for name in ANCHORS]
    share = max(part.seconds, 1e-12)
    return [*anchor, math.log2(part.nodes.bit_count()) / 4.0, math.log(share / seconds) / 4.0, math.log(share * 1e6) / 4.0]


def state_features(graph: PlanGraph, state: State) -> np.ndarray:
    """Return all features of a state, float32 [NUM_FEATURES], with 0 in place of `remaining`; cached in the state."""
    if "features" not in state.known:
        state.known["features"] = _state(graph, state)
    found: np.ndarray = state.known["features"]
    return found


def _state(graph: PlanGraph, state: State) -> np.ndarray:
    nodes, link, links = node_features(graph), graph.link_of(state), max(1, len(graph.links))
    passed = min(state.link, links) / links, max(0, state.link - links) / links
    share = len(state.parts) / len(graph.of.names)
    start = [math.log(graph.first.seconds / state.seconds), math.log(state.seconds / graph.floor) / 2.0, *passed, share]
    ends = [[*nodes[one].tolist(), *part_features(state.part_of[one], state.seconds)] for one in link or ()]
    of_ends = [*ends[0], *ends[1]] if ends else [0.0] * (2 * (NODE + PART))
    decisions = [number for three in _decisions(state) for number in three]
    found = np.array([*start, 0.0, 0.0, *of_ends, *decisions, *_of_machine(graph.hardware)], np.float32)
    return found.clip(-LIMIT, LIMIT)


@lru_cache(maxsize=64)
def _of_machine(hw: Hardware) -> tuple[float, ...]:
    rates = hw.peak_of("float32") / hw.memory[-1].bandwidth, hw.level("l2").capacity
    return float(hw.kind == "gpu"), math.log2(hw.units) / 4.0, *(math.log2(rate) / 8.0 for rate in rates)


def decision_features(state: State) -> np.ndarray:
    """Return the features of every action, float32 [NUM_ACTIONS, DECISION]. Both logs are 0 for actions that change nothing."""
    return np.array(_decisions(state), np.float32).clip(-LIMIT, LIMIT)


def _decisions(state: State) -> list[tuple[float, float, float]]:
    found = [(float(legal), 0.0, 0.0) for legal in state.mask]
    for action, change in enumerate(state.changes):
        if change is not None:
            before = max(change.part.seconds - change.seconds, 1e-12)
            ratio = math.log(before / max(change.part.seconds, 1e-12))
            found[action] = 1.0, ratio, 16.0 * math.log(state.seconds / (state.seconds + change.seconds))
    return found


class PlanView:
    """Turns the features of one environment, or of a batch, into the chosen observation."""

    def __init__(self, settings: Settings) -> None:
        """Take the kind of observation and the groups from the settings. ValueError names an unknown group."""
        self.kind = settings.observation
        self.slices = kept_slices(settings.groups, SLICES)
        self.keep = np.concatenate([np.arange(s.start, s.stop) for s in self.slices.values()])
        self._graphs = PlanGraphView(len(self.keep), NODE, PART)
        self.space = self._space()

    def _space(self) -> gymnasium.Space:
        if self.kind == "dict":
            boxes: dict[str, gymnasium.Space] = {name: box(s.stop - s.start) for name, s in self.slices.items()}
            return gymnasium.spaces.Dict(boxes)
        if self.kind == "graph":
            return self._graphs.space
        return box(NUM_ACTIONS, NUM_SUCCESSOR_FEATURES) if self.kind == "successors" else box(len(self.keep))

    def single(self, features: np.ndarray, graph: PlanGraph, row: np.ndarray, mask: np.ndarray) -> Any:
        """Return the observation of one environment from its features [F]."""
        if self.kind == "successors":
            found = np.zeros((NUM_ACTIONS, NUM_SUCCESSOR_FEATURES), np.float32)
            found[:, :DECISION] = decision_features(graph.state(row))
            found[:, 0] = mask
            found[:, DECISION:] = np.eye(NUM_ACTIONS)
            return found
        if self.kind == "graph":
            return self._graph_of(graph, graph.state(row), features)
        return self.batch(features.copy())

    def graph_of(self, graph: PlanGraph, state: State) -> GraphInstance:
        """Return observation `graph` of a state outside any episode; its features of group `remaining` are 0."""
        return self._graph_of(graph, state, state_features(graph, state))

    def _graph_of(self, graph: PlanGraph, state: State, features: np.ndarray) -> GraphInstance:
        known = {part: part_features(part, state.seconds) for part in state.parts}
        parts = np.array([known[part] for part in state.part_of], np.float32)
        return self._graphs.of(features[self.keep], node_features(graph), parts.clip(-LIMIT, LIMIT), graph, state)

    def batch(self, features: np.ndarray) -> Any:
        """Return the flat observation, or a dictionary of its groups, from features [..., F]."""
        if self.kind == "dict":
            return {name: features[..., s].copy() for name, s in self.slices.items()}
        return features[..., self.keep]

    def drawn(self, mode: str) -> Callable[[PlanGraph, Any], Any]:
        """Return the function that draws a plan in a render mode."""
        from gensor_gym.env.planning import pictures

        return pictures.as_text if mode == "ansi" else pictures.as_image
