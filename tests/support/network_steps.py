"""A network's kernels one by one: each is held to the float64 value of its own piece, of the numbers that it was given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_gym.codegen.kernel import Kernel
from gensor_gym.codegen.runtime.c import load
from gensor_gym.dataflow.bounds import Bounded, exact
from gensor_gym.dataflow.evaluate import evaluate_node
from gensor_gym.dataflow.graph import VIEWS
from gensor_gym.networks.network import Network
from gensor_gym.networks.plan import Plan


def value_at(network: Network, name: str, known: dict[str, np.ndarray]) -> np.ndarray:
    """A value that was made, one of parts that were, which lie one behind the other, or a part of one that was."""
    if name in known:
        return known[name]
    value = network.graph.values[name]
    if name in network.cuts:
        whole, before = network.cuts[name]
        first = before // 4
        return value_at(network, whole, known).ravel()[first : first + value.size].reshape(value.shape)
    parts = [value_at(network, network.root_of(part), known).ravel() for part in network.nodes[name].inputs]
    return np.concatenate(parts).reshape(value.shape)


def outputs_step_by_step(plan: Plan, kernels: Sequence[Kernel], inputs: Sequence[np.ndarray], threads: int) -> list[np.ndarray]:
    """The outputs, computed kernel by kernel; AssertionError for a kernel outside of its bound, or with none.

    The bound of a whole network grows with its depth, until nothing breaks it; that of a piece does not.
    """
    network = plan.network
    known = dict(network.constants) | {value.name: array for value, array in zip(network.inputs, inputs, strict=True)}
    for piece, step, kernel in zip(plan.pieces, plan.steps, kernels, strict=True):
        shapes = [tensor.shape for tensor in step.computation.inputs]
        read = [value_at(network, name, known) for name in step.reads]
        known |= dict(zip(step.reads, read, strict=True))
        given = [np.ascontiguousarray(one).reshape(shape) for one, shape in zip(read, shapes, strict=True)]
        made = load(kernel, threads)(*given)
        for name, array in zip(step.writes, made if isinstance(made, tuple) else (made,), strict=True):
            expected = _expected(plan, name, piece.nodes, known)
            shape = network.graph.values[name].shape
            wrong = np.abs(array.reshape(shape) - expected.value) > expected.error
            assert not wrong.any(), f"{name}: {np.count_nonzero(wrong)} of {wrong.size} outside of their bounds"
            assert np.isfinite(expected.error).all(), f"{name} has no bound"
            known[name] = array.reshape(shape)
    found = [(name, value_at(network, network.root_of(name), known)) for name in network.graph.returns]
    return [value.reshape(network.graph.values[name].shape) for name, value in found]


def _expected(plan: Plan, wanted: str, piece: Sequence[str], known: dict[str, np.ndarray]) -> Bounded:
    """A value of a piece in float64, of what the kernels before it made."""
    found: dict[str, Bounded] = {}

    def value_of(name: str) -> Bounded:
        if name not in found:
            node = plan.network.nodes.get(name)
            if node is not None and (name in piece or isinstance(node, VIEWS)):
                for one in node.inputs:
                    value_of(one)
                found[name] = evaluate_node(node, found)
            else:
                found[name] = exact(known[name].astype(np.float64))
        return found[name]

    made, shape = value_of(wanted), plan.network.graph.values[wanted].shape
    return Bounded(np.broadcast_to(made.value, shape), np.broadcast_to(made.error, shape))
