"""Interfaces of a search by measurement: a graph of nodes, a task, and a backend that times nodes.

A node is a schedule of an operator (`ConstructionGraph`) or a configuration of a recorded space
(`gensor_gym.spaces.session.TuningGraph`). A strategy that uses only these protocols can search both. A strategy that uses a model
needs a `ConstructionGraph`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from gensor_gym.measure.measurement import Measurement

Node = TypeVar("Node")
"""Type of the nodes of a search. A node's text identifies it."""
Asked = TypeVar("Asked", contravariant=True)
"""Type of the nodes in interfaces that take nodes but return none."""


class SearchGraph(Protocol[Node]):
    """Nodes (schedules or configurations), and the actions that lead from one node to another."""

    def initial(self) -> Node:
        """Return the node at which a search starts: the unscheduled program, or the first recorded configuration."""

    def action_mask(self, node: Node, /) -> np.ndarray:
        """Whether each action is legal, bool [A]."""

    def transition(self, node: Node, action: int, /) -> Node:
        """Return the node after an action. An illegal action and `stop` return the node unchanged."""

    def successors(self, node: Node, /) -> dict[int, Node]:
        """Return the node to which each legal action leads, by action. `stop` is left out."""

    def random_schedule(self, rng: np.random.Generator, steps: int | None = None, start: Node | None = None) -> Node:
        """Draw a random node. With `steps`, it is the end of a walk of that many random actions from `start`."""

    def enumerate(self) -> Iterator[np.ndarray]:
        """Yield all nodes, in batches of rows int32 [B, R]."""

    def schedule(self, row: np.ndarray, /) -> Node:
        """Return the node of a row int32 [R]."""


class SearchTask(Protocol):
    """The task of a search: operator and hardware, in the form that the backend takes."""

    @property
    def operator(self) -> Any:
        """Return the program that is tuned."""

    @property
    def hardware(self) -> Any:
        """Return the machine for which the program is tuned."""


class SearchBackend(Protocol[Asked]):
    """The part of `gensor_gym.measure.backend.Backend` that a session uses."""

    @property
    def stored(self) -> bool:
        """Whether a store should keep the results."""

    def device(self, hw: Any, /) -> str:
        """Return the name of the device that the times belong to."""

    def digest(self, op: Any, node: Asked, hw: Any, /) -> str:
        """Return the digest that identifies a node's program. Nodes with equal digests count as one trial."""

    def stream(self, op: Any, nodes: Sequence[Asked], hw: Any, /) -> Iterator[Measurement]:
        """Yield one measurement for each node, in order, each when it is ready."""
