"""All reachable states of a small task, as a graph in arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_gym.construction import ConstructionGraph
from gensor_gym.graph.actions import STOP

MOST_STATES = 200_000
"""Largest number of states of a task that is explored."""


@dataclass(frozen=True, eq=False)
class StateGraph:
    """All reachable states of a task, ordered by their distance from the first, with every legal action except `stop` as an edge.

    States: rows int32 [S, ROW], seconds float64 [S] by the model, depth int64 [S] (steps from state 0). Edges, sorted by
    source state: source, action and target int64 [E].
    """

    rows: np.ndarray
    seconds: np.ndarray
    depth: np.ndarray
    source: np.ndarray
    action: np.ndarray
    target: np.ndarray

    @property
    def optimal(self) -> np.ndarray:
        """Whether each state is as fast as the fastest, bool [S]."""
        return self.seconds == self.seconds.min()

    def index(self, row: np.ndarray) -> int:
        """Return the index of the state with this row. ValueError if it cannot be reached."""
        found = np.flatnonzero((self.rows == row).all(axis=1))
        if len(found) == 0:
            raise ValueError(f"row {np.asarray(row).tolist()} is none of the {len(self.rows)} reachable states")
        return int(found[0])


def explore(graph: ConstructionGraph, most: int = MOST_STATES) -> StateGraph:
    """Find all states that can be reached from the unscheduled program. ValueError if there are more than `most`."""
    frontier = graph.initial().row[None]
    number = {frontier[0].tobytes(): 0}
    layers, edges = [frontier], []
    while len(frontier):
        masks = graph.action_masks(frontier)
        masks[:, STOP] = False
        at, actions = np.nonzero(masks)
        rows, _ = graph.transitions(frontier[at], actions)
        first, fresh, targets = len(number) - len(frontier), [], np.empty(len(rows), dtype=np.int64)
        for i, row in enumerate(rows):
            key = row.tobytes()
            if key not in number:
                number[key] = len(number)
                fresh.append(row)
            targets[i] = number[key]
        if len(number) > most:
            raise ValueError(f"{graph.operator} in space {graph.space!r} has more than {most} states: too many to explore")
        edges.append((first + at, actions, targets))
        frontier = np.stack(fresh) if fresh else frontier[:0]
        layers.append(frontier)
    rows = np.concatenate(layers)
    source, action, target = (np.concatenate(part) for part in zip(*edges, strict=True))
    depth = np.repeat(np.arange(len(layers)), [len(layer) for layer in layers])
    return StateGraph(rows, graph.latencies(rows), depth, source, action, target)
