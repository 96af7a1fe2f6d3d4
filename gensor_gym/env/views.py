"""Observations of `Construct-v0`, made of its features: flat, by group, one row per action, or a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.cost.model import latency
from gensor_gym.cost.terms import NUM_TERMS
from gensor_gym.env.graph_view import GraphView, box
from gensor_gym.env.observation import GROUPS, LIMIT, OFFSETS, fill_resources, group_slices
from gensor_gym.env.settings import Settings
from gensor_gym.graph.actions import ACTIONS, NUM_ACTIONS
from gensor_gym.graph.compiled import early
from gensor_gym.graph.rules import transition
from gensor_gym.graph.schedule import Schedule
from gensor_gym.graph.tables.layout import LEVEL, ROW

_PRIMITIVES = sorted({action.primitive for action in ACTIONS})
_ONE_HOT = np.array([[a.primitive == p for p in _PRIMITIVES] for a in ACTIONS], dtype=np.float32)
_RESOURCES = OFFSETS["resources"]
NUM_SUCCESSOR_FEATURES = 3 + NUM_TERMS + GROUPS["resources"] + len(_PRIMITIVES)
"""Number of features of the state that an action leads to: legality, log speed-up by the model, level, log ratios of terms,
resources, primitive."""


class ObservationView:
    """Turns the flat features of one environment, or of a batch, into the observation that the settings choose."""

    def __init__(self, settings: Settings) -> None:
        """Take the kind of observation and the groups from the settings. ValueError names an unknown group."""
        self.kind = settings.observation
        self.slices = group_slices(settings.groups)
        self.keep = np.concatenate([np.arange(s.start, s.stop) for s in self.slices.values()])
        self.whole = len(self.slices) == len(GROUPS)
        self._graphs = GraphView(self.slices)
        self.space = self._space()

    def _space(self) -> gymnasium.Space:
        if self.kind == "dict":
            boxes: dict[str, gymnasium.Space] = {name: box(s.stop - s.start) for name, s in self.slices.items()}
            return gymnasium.spaces.Dict(boxes)
        if self.kind == "successors":
            return box(NUM_ACTIONS, NUM_SUCCESSOR_FEATURES)
        if self.kind == "graph":
            return self._graphs.space
        return box(len(self.keep))

    def single(self, features: np.ndarray, graph: ConstructionGraph, row: np.ndarray, mask: np.ndarray) -> Any:
        """Return the observation of one environment from its features float32 [F]."""
        if self.kind == "successors":
            return successor_features(graph, row, mask)
        if self.kind == "graph":
            return self._graphs.of({name: features[s] for name, s in self.slices.items()}, graph.operator)
        return self.batch(features.copy())

    def drawn(self, mode: str) -> Callable[[ConstructionGraph, Schedule], Any]:
        """Return the function that draws a schedule in a render mode."""
        from gensor_gym.env.pictures import render

        return render.as_text if mode == "ansi" else render.as_image

    def batch(self, features: np.ndarray) -> Any:
        """Return the flat observation, or a dictionary of its groups, from features [..., F].

        The flat observation of all groups is `features` itself.
        """
        if self.kind == "dict":
            return {name: features[..., s].copy() for name, s in self.slices.items()}
        return features if self.whole else features[..., self.keep]


def successor_features(graph: ConstructionGraph, row: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the features of the state that each action leads to, float32 [N, NUM_SUCCESSOR_FEATURES].

    The row of an illegal action has only the one hot of the action's primitive.
    """
    out = np.zeros((NUM_ACTIONS, NUM_SUCCESSOR_FEATURES), dtype=np.float32)
    tables = graph.tables
    _fill_successors(row, mask.view(np.int8), tables.ints, tables.floats, tables.sizes, graph.room(), out)
    out[:, -len(_PRIMITIVES) :] = _ONE_HOT
    return out


@early
def _fill_successors(row, mask, ints, floats, sizes, space, out):  # noqa: ANN001, ANN202
    scratch, result = np.empty(ROW, dtype=np.int32), np.empty(ROW, dtype=np.int32)
    here, there = np.empty(NUM_TERMS), np.empty(NUM_TERMS)
    flat = np.zeros(_RESOURCES + 6)
    now = latency(row, ints, floats, here, scratch, space)
    for action in range(mask.shape[0]):
        if mask[action] == 0:
            continue
        transition(row, action, ints, sizes, scratch, result)
        after = latency(result, ints, floats, there, scratch, space)
        out[action, 0] = 1.0
        out[action, 1] = max(-LIMIT, min(LIMIT, np.log(now / after)))
        out[action, 2] = result[LEVEL] / 4.0
        for t in range(NUM_TERMS):
            ratio = np.log((here[t] + 1e-12) / (there[t] + 1e-12))
            out[action, 3 + t] = max(-LIMIT, min(LIMIT, ratio))
        fill_resources(result, ints, flat)
        for i in range(6):
            out[action, 3 + NUM_TERMS + i] = flat[_RESOURCES + i]
