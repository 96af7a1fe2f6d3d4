"""Protocols of a search by measurement: a graph of nodes, its task, and a backend that times nodes.

A node is a schedule of an operator (`ConstructionGraph`) or a configuration of a recorded space
(`gensor_gym.spaces.session.TuningGraph`). A strategy written to these protocols searches both. They include no model: a strategy
that uses one needs a `ConstructionGraph`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from gensor_gym.measure.measurement import Measurement

Node = TypeVar("Node")
"""A measured node, named by its text."""
Asked = TypeVar("Asked", contravariant=True)
"""The same, for protocols that only accept nodes."""


class SearchGraph(Protocol[Node]):
    """Nodes, and the actions that lead from one to another."""

    def initial(self) -> Node:
        """The start of a construction, or the first recorded configuration."""

    def action_mask(self, node: Node, /) -> np.ndarray:
        """Legal actions, bool [A]."""

    def transition(self, node: Node, action: int, /) -> Node:
        """The successor; an illegal action, or `stop`, returns the node unchanged."""

    def successors(self, node: Node, /) -> dict[int, Node]:
        """Legal actions except `stop`, each with the node it leads to."""

    def random_schedule(self, rng: np.random.Generator, steps: int | None = None, start: Node | None = None) -> Node:
        """A random node; with `steps`, the end of a walk of that many random actions from `start`."""

    def enumerate(self) -> Iterator[np.ndarray]:
        """All nodes, in batches of rows int32 [B, R]."""

    def schedule(self, row: np.ndarray, /) -> Node:
        """The node of a row int32 [R]."""


class SearchTask(Protocol):
    """The task of a search: operator and hardware, as the backend takes them."""

    @property
    def operator(self) -> Any:
        """The program that is tuned."""

    @property
    def hardware(self) -> Any:
        """The machine that it is tuned for."""


class SearchBackend(Protocol[Asked]):
    """The part of `gensor_gym.measure.backend.Backend` that a session uses."""

    @property
    def stored(self) -> bool:
        """Whether its results should be kept in a store."""

    def device(self, hw: Any, /) -> str:
        """Name of the device for which results hold."""

    def digest(self, op: Any, node: Asked, hw: Any, /) -> str:
        """Identity of the program: nodes of one digest are one trial."""

    def stream(self, op: Any, nodes: Sequence[Asked], hw: Any, /) -> Iterator[Measurement]:
        """One measurement for each node, in order, when it is ready."""
