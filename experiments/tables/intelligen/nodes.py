"""A fused operator without graph transformation: every node is a separate kernel, with a tensor between any two.

Broadcasts and reshapes are not kernels: a node that reads a broadcast reads its source, and a reshape is the same memory.
(Unified IR, the group's later text, calls these `identity`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_gym.codegen.build import BuiltKernel
from gensor_gym.codegen.runtime.memory import aligned
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Broadcast, Node, Reshape, Value


@dataclass(frozen=True)
class Chain:
    """The nodes of an operator that need kernels, each as an operator; every output of the operator comes from one of them."""

    graph: Dataflow
    parts: tuple[Dataflow, ...]

    def bound(self, kernels: Mapping[Dataflow, BuiltKernel], inputs: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
        """Function that calls the kernels of all parts in order on preallocated tensors."""
        known = dict(zip((value.name for value in self.graph.inputs), inputs, strict=True))
        calls = []
        parts = {part.returns[0]: part for part in self.parts}
        for name, node in self.graph.nodes:
            if isinstance(node, Reshape):
                known[name] = known[node.source].reshape(node.to)
            elif not isinstance(node, Broadcast):
                known[name] = aligned(self.graph.values[name].shape, np.dtype(np.float32))
                given = (known[value.name] for value in parts[name].inputs)
                calls.append(kernels[parts[name]].bind(*given, known[name]))
        outputs = [known[name] for name in self.graph.returns]

        def call() -> list[np.ndarray]:
            for one in calls:
                one()
            return outputs

        return call


def chain_of(graph: Dataflow) -> Chain:
    """Split an operator into one operator for each node that needs a kernel; ValueError if an output is only a broadcast."""
    nodes = dict(graph.nodes)
    if repeated := [name for name in graph.returns if isinstance(nodes.get(name), Broadcast)]:
        raise ValueError(f"{graph}: output {repeated[0]} is a broadcast, expected a node that has a kernel")
    made = [(name, node) for name, node in nodes.items() if not isinstance(node, (Broadcast, Reshape))]
    return Chain(graph, tuple(_alone(graph, nodes, name, node) for name, node in made))


def _alone(graph: Dataflow, nodes: Mapping[str, Node], name: str, node: Node) -> Dataflow:
    """One node as an operator, with the broadcasts that it reads."""
    repeated: list[tuple[str, Node]] = []
    read: dict[str, Value] = {}
    for source in node.inputs:
        while isinstance(one := nodes.get(source), Broadcast):
            repeated.insert(0, (source, one))
            source = one.source
        read[source] = graph.values[source]
    steps = tuple(dict.fromkeys((*repeated, (name, node))))
    return Dataflow(f"{graph.name}_{name}", tuple(read.values()), steps, (name,))
