"""Fused operators that an environment draws from, each with its graph and the table of its whole space."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.resolve import resolve_computation
from gensor_gym.env.fused.observation import NUM_FEATURES, static_features
from gensor_gym.env.fused.spaces import Spaces
from gensor_gym.gir.actions import NUM_ACTIONS
from gensor_gym.gir.graph import GirGraph
from gensor_gym.hardware.types import Hardware

FusedSpec = Dataflow | str | Sequence["Dataflow | str"]


class GirTasks:
    """Fused operators from which an environment draws, with their construction graphs on one machine.

    It implements the protocol `env.tasks.Tasks`.
    """

    num_actions, num_features = NUM_ACTIONS, NUM_FEATURES
    starts_anywhere = True

    def __init__(self, operator: FusedSpec, hardware: Hardware | str, space: str) -> None:
        """Resolve operators and build their graphs. ValueError for an operator that is not fused, and for an empty list."""
        if not isinstance(operator, (Dataflow, str, Sequence)):
            raise ValueError(f"operator {operator!r}: expected a fused operator, its text, or a list of these")
        self.hardware, self.space = machines.get(hardware), space
        self.graphs: list[GirGraph] = []
        self._index: dict[Dataflow, int] = {}
        given = [operator] if isinstance(operator, (Dataflow, str)) else list(operator)
        if not given:
            raise ValueError("operator is an empty list; it takes one fused operator or more")
        self._choices = [self._append(one) for one in given]
        self._stack()

    def add(self, op: Dataflow | str) -> int:
        """Return the index of an operator's task, and create the task if it is missing.

        `op` may be text. ValueError if the operator is not fused.
        """
        known = len(self.graphs)
        number = self._append(op)
        if len(self.graphs) > known:
            self._stack()
        return number

    def _append(self, op: Dataflow | str) -> int:
        found = resolve_computation(op)
        if not isinstance(found, Dataflow):
            place = "no environment" if found.winograd else "the environment gensor_gym/Construct-v0"
            raise ValueError(f"{found} is an operator of one loop nest; it has {place}")
        if found not in self._index:
            graph = GirGraph(found, self.hardware, self.space)
            self._index[found] = len(self.graphs)
            self.graphs.append(graph)
        return self._index[found]

    def _stack(self) -> None:
        self.initial = np.stack([graph.initial().row for graph in self.graphs])
        self.static = np.stack([static_features(graph) for graph in self.graphs])
        self.spaces = Spaces([graph.table for graph in self.graphs])
        self.starts = np.array([graph.table.terms[0, 0] for graph in self.graphs])
        self.floors = np.array([graph.floor for graph in self.graphs])
        self.horizons = np.array([graph.horizon for graph in self.graphs])

    def draw(self, stream: Callable[[], np.random.Generator]) -> int:
        """Draw a task uniformly by the generator that `stream()` returns. Return its index, 0 for a single operator."""
        count = len(self._choices)
        return 0 if count == 1 else self._choices[stream().integers(count)]
