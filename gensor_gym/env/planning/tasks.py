"""The networks that an environment draws from, each with the graph of decisions about its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.env.planning.features import NUM_FEATURES
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.network import Network
from gensor_gym.networks.planning.drawn import FAMILIES, PARTS, drawn, names_of, network_of
from gensor_gym.networks.planning.graph import PlanGraph
from gensor_gym.networks.planning.state import MOST_LINKS, NUM_ACTIONS

One = Network | Dataflow | str
NetworkSpec = One | Sequence[One]


class PlanTasks(Sequence[PlanGraph]):
    """Graphs of one or many networks on one machine, each made when it is first used; implements `env.tasks.Tasks`."""

    num_actions, num_features = NUM_ACTIONS, NUM_FEATURES
    starts_anywhere = False
    space = PlanGraph.space

    def __init__(self, operator: NetworkSpec, hardware: Hardware | str, seed: int | None = None) -> None:
        """Make the first network's graph; `seed` is that of `network_of`. ValueError for no network, or an empty list."""
        self.hardware, self._seed = machines.get(hardware), seed
        self._given = _listed(operator)
        for op in self._given if isinstance(operator, list | tuple) else ():
            _network(op, None)
        self._count = len(self._given)
        self._index: dict[object, int] = {_key(op): place for place, op in reversed([*enumerate(self._given)])}
        self._made: dict[int, PlanGraph] = {}
        self.graphs: Any = self
        self.initial = np.zeros((self._count, MOST_LINKS), np.int32)
        """First row of each task, in which nothing is decided."""
        self.starts, self.floors = np.zeros((2, self._count))
        self.horizons = np.zeros(self._count, np.int64)
        _ = self[0]

    def __len__(self) -> int:
        """Return the number of networks."""
        return len(self._given)

    def __getitem__(self, index: Any) -> Any:
        """Return the graph of the network with this index. ValueError if its text is no network, or if a node has no kernel."""
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        place = range(len(self))[index]
        if place not in self._made:
            graph = self._made[place] = PlanGraph(_network(self._given[place], self._seed), self.hardware)
            self.starts[place], self.floors[place], self.horizons[place] = graph.first.seconds, graph.floor, graph.horizon
        return self._made[place]

    def add(self, op: One) -> int:
        """Return the index of a network's task, and create the task if it is missing.

        `op` is a network, its graph or its text; ValueError for anything else.
        """
        if _key(op) not in self._index:
            graph = PlanGraph(_network(op, self._seed), self.hardware)
            place = self._index[_key(op)] = len(self)
            self._given.append(op)
            self._made[place] = graph
            self.starts, self.floors = np.append(self.starts, graph.first.seconds), np.append(self.floors, graph.floor)
            self.horizons, self.initial = np.append(self.horizons, graph.horizon), np.zeros((len(self), MOST_LINKS), np.int32)
        place = self._index[_key(op)]
        _ = self[place]
        return place

    def draw(self, stream: Callable[[], np.random.Generator]) -> int:
        """Draw one of the given networks uniformly and return its index; with a single network `stream` is not called."""
        place = 0 if self._count == 1 else int(stream().integers(self._count))
        _ = self[place]
        return place


def _key(op: One) -> object:
    return id(op) if isinstance(op, Network) else op


def _listed(operator: NetworkSpec) -> list[One]:
    """Return the given networks as a list. The name of a part of the random networks stands for all its networks."""
    if isinstance(operator, str) and operator in PARTS:
        return list(names_of(operator))
    if isinstance(operator, (Network, Dataflow, str)):
        return [operator]
    if not isinstance(operator, Sequence) or not operator:
        raise ValueError(f"operator {operator!r}: expected a network, its graph or text, or a list of one of these or more")
    return list(operator)


def _network(op: One, seed: int | None) -> Network:
    if isinstance(op, Network):
        return op
    known = drawn(op) if isinstance(op, str) else op
    expected = f"a network, a graph's text, or one of {', '.join(FAMILIES)} such as normed(seed=7)"
    try:
        found = resolve_computation(op) if known is None else known
    except ValueError as error:
        raise ValueError(f"operator {op!r}: expected {expected} ({error})") from error
    if not isinstance(found, Dataflow):
        raise ValueError(f"{op!r}: expected {expected}")
    return network_of(found, seed)
