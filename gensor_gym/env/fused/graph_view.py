"""Observation `graph` of a fused operator, for graph neural networks.

Nodes are the operator's inputs and computed values; edges lead from a value to the values computed from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import gymnasium
import numpy as np
from gymnasium.spaces import GraphInstance

from gensor_gym.dataflow.expressions import operations
from gensor_gym.env.graph_view import box
from gensor_gym.gir.graph import GirGraph
from gensor_gym.gir.nest import Cell, RowNest
from gensor_gym.gir.placement import Level
from gensor_gym.gir.schedule import HEADER

KINDS = ("load", "map", "reduce", "program")
_CELL = 5
_GLOBAL = ("header", "speed", "terms", "remaining", "nest")
EDGE_FEATURES = 3
"""Number of features of an edge: number of passes between a value and its reader; whether a later pass reads the value; whether
the edge starts at the program's node."""


class GirGraphView:
    """Turns the features of a scheduled fused operator into a graph observation.

    Nodes: the operator's inputs and computed values (cells) in the order of its loop nest, then the program. Features of a node,
    float32: one hot of `KINDS`; for a cell whether it varies along columns, its number of successive reductions, log operations,
    whether it is an output, whether several passes read it, and one hot of its placement; for the program the groups header (the
    five settings), speed, terms, remaining and nest, if `observation_groups` has them. Edges: (source, reader), and (program,
    cell) for every cell.
    """

    def __init__(self, sizes: Mapping[str, int], groups: Iterable[str]) -> None:
        """Define the graph's observation space.

        `sizes` maps each group to its number of features; `groups` are the names of the observed groups.
        """
        self._global = [name for name in _GLOBAL if name in set(groups)]
        self._at = len(KINDS) + _CELL
        self._width = self._at + len(Level) + sum(sizes[name] for name in self._global)
        self.space = gymnasium.spaces.Graph(box(self._width), box(EDGE_FEATURES))

    def of(self, groups: Mapping[str, np.ndarray], graph: GirGraph, row: np.ndarray) -> GraphInstance:
        """Return the graph of one schedule, given as an int32 row [ROW].

        `groups` maps each observed group to its features float32 [F]; `graph` is the construction graph of the operator.
        """
        nest = graph.nest
        nodes = np.zeros((len(nest.cells) + 1, self._width), np.float32)
        stored = {name for name, _ in nest.stores}
        for place, cell in enumerate(nest.cells):
            nodes[place, _kind(cell)] = 1.0
            facts = (cell.wide, cell.stage / 4.0, _operations(cell), cell.name in stored, cell.name in nest.crossing)
            nodes[place, len(KINDS) : self._at] = facts
        places = {cell.name: place for place, cell in enumerate(nest.cells)}
        for number, name in enumerate(nest.crossing):
            nodes[places[name], self._at + int(row[HEADER + number])] = 1.0
        nodes[-1, len(KINDS) - 1] = 1.0
        if self._global:
            whole = np.concatenate([groups[name] for name in self._global])
            nodes[-1, -len(whole) :] = whole
        features, links = _edges(nest, places)
        return GraphInstance(nodes=nodes, edges=features, edge_links=links)


def _kind(cell: Cell) -> int:
    return KINDS.index("load" if cell.is_load else "reduce" if cell.is_reduction else "map")


def _operations(cell: Cell) -> float:
    made = 0 if cell.is_load or cell.is_reduction else operations(cell.made)  # type: ignore[arg-type]
    return float(np.log2(1.0 + made) / 4.0)


def _edges(nest: RowNest, places: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges: features float32 [E, EDGE_FEATURES], and (source, target) nodes int32 [E, 2]."""
    features, links = [], []
    for cell in nest.cells:
        for source in cell.sources:
            apart = (cell.stage - nest.cell[source].stage) / 4.0
            features.append((apart, float(source in nest.crossing), 0.0))
            links.append((places[source], places[cell.name]))
    features += [(0.0, 0.0, 1.0)] * len(places)
    links += [(len(places), place) for place in places.values()]
    return np.array(features, np.float32), np.array(links, np.int32)
