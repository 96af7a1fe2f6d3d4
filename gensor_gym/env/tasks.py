"""Tasks that an environment draws from: one construction graph per operator, with the tables of all graphs stacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from gensor_gym import hardware as machines
from gensor_gym import operators
from gensor_gym.construction import ConstructionGraph
from gensor_gym.env.observation import NUM_FEATURES, static_features
from gensor_gym.graph.actions import NUM_ACTIONS
from gensor_gym.hardware.types import Hardware
from gensor_gym.operators.types import Operator


class Tasks(Protocol):
    """Interface of a set of tasks from which an environment draws, for any kind of construction graph."""

    graphs: list[Any]
    """Graph of each task."""
    space: str
    initial: np.ndarray
    """First state of each task as a row, int32 [K, R]."""
    num_actions: int
    num_features: int
    """Numbers of actions (`num_actions`) and of features of a state (`num_features`), which all graphs share."""
    starts_anywhere: bool
    """Whether an episode may begin at any schedule, instead of at the first state only."""

    def add(self, op: Any) -> int:
        """Return the index of an operator's task, and create the task if it is missing.

        `op` may be text. ValueError if it is unknown.
        """

    def draw(self, stream: Callable[[], np.random.Generator]) -> int:
        """Draw a task uniformly by the generator that `stream()` returns. Return its index, 0 for a single operator."""


OperatorSpec = Operator | str | Sequence["Operator | str"]


def _is_fused(operator: object) -> str:
    """Return, for error messages, which environment to use if the operator is a fused one; else an empty text."""
    from gensor_gym.dataflow.suite import FACTORIES  # not at the top, because only errors need it

    named = isinstance(operator, str) and operator.partition("(")[0].strip() in FACTORIES
    return "; it is a fused operator, which has the environment gensor_gym/Gir-v0" if named else ""


class TaskSet:
    """Construction graphs of one or more operators on one machine, with their tables stacked into arrays.

    The first axis is the K tasks: ints int64 [K, NUM_INTS], floats float64 [K, NUM_FLOATS], sizes int64 [K, S] (padded), static
    features float32 [K, F], initial rows int32 [K, ROW]. starts float64 [K] is the model's time of each unscheduled program in
    seconds, 0 until an episode begins.
    """

    def __init__(self, operator: OperatorSpec, hardware: Hardware | str, space: str) -> None:
        """Resolve operators (`operators.resolve`) and build their graphs. ValueError names an unknown operator or machine."""
        self.hardware = machines.get(hardware)
        self.space = space
        try:
            self.operators = operators.resolve(operator)
        except ValueError as error:
            raise ValueError(f"{error}{_is_fused(operator)}") from error
        self.graphs: list[ConstructionGraph] = []
        self._index: dict[Operator, int] = {}
        for op in self.operators:
            self._append(op)
        self._choices = [self._index[op] for op in self.operators]
        self._stack()

    num_actions, num_features = NUM_ACTIONS, NUM_FEATURES
    starts_anywhere = True

    def add(self, op: Operator | str) -> int:
        """Return the index of an operator's task, and create the task if it is missing.

        `op` may be text. ValueError if it is unknown.
        """
        op = operators.resolve_one(op)
        if op not in self._index:
            self._append(op)
            self._stack()
        return self._index[op]

    def _append(self, op: Operator) -> None:
        if op not in self._index:
            self._index[op] = len(self.graphs)
            self.graphs.append(ConstructionGraph(op, self.hardware, self.space))

    def _stack(self) -> None:
        tables = [graph.tables for graph in self.graphs]
        width = max(len(t.sizes) for t in tables)
        self.ints = np.stack([t.ints for t in tables])
        self.floats = np.stack([t.floats for t in tables])
        self.sizes = np.stack([np.pad(t.sizes, (0, width - len(t.sizes))) for t in tables])
        self.static = np.stack([static_features(g.operator, g.hardware) for g in self.graphs])
        self.initial = np.stack([g.initial().row for g in self.graphs])
        self.starts = np.zeros(len(tables))

    def room(self) -> np.ndarray:
        """Return new working memory for the compiled process, from `cost.model.room`. Each thread needs its own."""
        return self.graphs[0].room()

    def draw(self, stream: Callable[[], np.random.Generator]) -> int:
        """Draw a task uniformly by the generator that `stream()` returns. Return its index, 0 for a single operator."""
        count = len(self._choices)
        return 0 if count == 1 else self._choices[stream().integers(count)]
