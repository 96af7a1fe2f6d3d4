"""Observation `graph`, for graph neural networks: nodes for axes, tensors and the program; edges for the tensors' accesses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import GraphInstance

from gensor_gym.env.observation import GROUPS, LIMIT
from gensor_gym.graph.structure import is_staged
from gensor_gym.graph.tables.layout import MAX_AXES, MAX_DIMS, MAX_LEVELS, slot_of
from gensor_gym.operators.types import Operator

KINDS = ("axis", "tensor", "program")
_AXIS = 2 + MAX_LEVELS + 1
_TENSOR = 4
_GLOBAL = ("knobs", "level", "resources", "terms", "remaining", "hardware")
EDGE_FEATURES = 4
"""Number of features of an edge: log coefficient, log stride in elements, dimension, and whether the edge starts at the program's
node. An edge of the program has 0 for the first three."""


class GraphView:
    """Turns the features of a scheduled operator into a graph observation.

    Nodes, in order: the operator's axes (axis i is action slot `slot_of(i, spatial)`), the tensors that it reads, the tensor that
    it writes, and the program. Node features, float32: one hot of `KINDS`; for an axis log extent, whether it is reduced, log
    tile of every level, log virtual threads; for a tensor log elements, whether it is written, whether a GPU stages it, number of
    dimensions; for the program the groups knobs, level, resources, terms, remaining and hardware, if `observation_groups` has
    them. Features of other kinds of node are 0. Edges: (axis, tensor) for every nonzero coefficient, and (program, node) for
    every other node.
    """

    def __init__(self, groups: Iterable[str]) -> None:
        """Define the graph's observation space.

        `groups` are the names of the observed groups; the graph lacks the features of all other groups.
        """
        self._global = [name for name in _GLOBAL if name in set(groups)]
        self._width = len(KINDS) + _AXIS + _TENSOR + sum(GROUPS[name] for name in self._global)
        self._fixed: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self.space = gymnasium.spaces.Graph(box(self._width), box(EDGE_FEATURES))

    def of(self, groups: Mapping[str, np.ndarray], op: Operator) -> GraphInstance:
        """Return the graph of one state of an operator.

        `groups` maps each group to its features float32 [F], as in the flat observation.
        """
        if str(op) not in self._fixed:
            self._fixed[str(op)] = (self._fixed_nodes(op), *_edges(op))
        nodes, edges, links = self._fixed[str(op)]
        nodes = nodes.copy()
        if "tiles" in groups:
            tiles = groups["tiles"].reshape(MAX_LEVELS + 1, MAX_AXES)
            slots = [slot_of(a, len(op.spatial)) for a in range(len(op.axes))]
            at = len(KINDS) + 2
            nodes[: len(slots), at : at + MAX_LEVELS + 1] = tiles[:, slots].T
        if self._global:
            whole = np.concatenate([groups[name] for name in self._global])
            nodes[-1, -len(whole) :] = whole
        return GraphInstance(nodes=nodes, edges=edges.copy(), edge_links=links.copy())

    def _fixed_nodes(self, op: Operator) -> np.ndarray:
        """Return node features float32 [V, F] that have only the entries that stay constant in an episode; all others are 0."""
        tensors = (*op.reads, op.write)
        nodes = np.zeros((len(op.axes) + len(tensors) + 1, self._width), dtype=np.float32)
        for row, axis in enumerate(op.axes):
            nodes[row, 0] = 1.0
            nodes[row, len(KINDS) : len(KINDS) + 2] = math.log2(axis.extent) / 8.0, axis.kind == "reduce"
        at = len(KINDS) + _AXIS
        for row, access in enumerate(tensors, start=len(op.axes)):
            written = access is op.write
            staged = not written and is_staged(op, access)
            nodes[row, 1] = 1.0
            nodes[row, at : at + _TENSOR] = (
                math.log2(access.tensor.size) / 8.0,
                written,
                staged,
                len(access.view) / MAX_DIMS,
            )
        nodes[-1, 2] = 1.0
        return nodes


class GraphObservation(gymnasium.ObservationWrapper[GraphInstance, int, Any], gymnasium.utils.RecordConstructorArgs):
    """Wrapper that gives a `ConstructEnv` with observation `flat` or `dict` the observations of `observation="graph"`."""

    def __init__(self, env: gymnasium.Env) -> None:
        """Wrap the environment; ValueError if its observation is neither `flat` nor `dict`."""
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        inner: Any = env.unwrapped
        if inner.view.kind not in ("flat", "dict"):
            raise ValueError(f"GraphObservation wraps observation 'flat' or 'dict', not {inner.view.kind!r}")
        self._names = list(inner.view.slices)
        self._view = GraphView(self._names)
        self.observation_space = self._view.space

    def observation(self, observation: Any) -> GraphInstance:
        """Convert a flat or dict observation of the current task to a graph."""
        groups = observation if isinstance(observation, dict) else self._split(observation)
        inner: Any = self.env.unwrapped
        return self._view.of(groups, inner.graph.operator)

    def _split(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        ends = np.cumsum([GROUPS[name] for name in self._names])
        return dict(zip(self._names, np.split(flat, ends[:-1]), strict=True))


def _edges(op: Operator) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges: features float32 [E, EDGE_FEATURES], and (source, target) nodes int32 [E, 2]."""
    features, links = [], []
    for t, access in enumerate((*op.reads, op.write)):
        strides = access.strides()
        for d, row in enumerate(access.coefficients):
            for a, coefficient in enumerate(row):
                if coefficient:
                    stride = math.log2(coefficient * strides[d] + 1) / 8.0
                    features.append((math.log2(coefficient + 1) / 2.0, stride, (d + 1) / MAX_DIMS, 0.0))
                    links.append((a, len(op.axes) + t))
    others = len(op.axes) + len(op.reads) + 1
    features += [(0.0, 0.0, 0.0, 1.0)] * others
    links += [(others, node) for node in range(others)]
    return np.array(features, dtype=np.float32), np.array(links, dtype=np.int32)


def box(*shape: int) -> gymnasium.spaces.Box:
    """Return a float32 Box of this shape with the limits of all observations, -`LIMIT` to `LIMIT`."""
    return gymnasium.spaces.Box(-LIMIT, LIMIT, shape, dtype=np.float32)
