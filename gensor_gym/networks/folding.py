"""What is done once for all calls: values made of constants alone, and factors of channels, which weights take in.

A batch normalisation after a product is a factor and an addend of every channel: the factor goes into the weights, the addend
stays as a bias.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from gensor_gym.dataflow.bounds import exact
from gensor_gym.dataflow.evaluate import evaluate_node
from gensor_gym.dataflow.expressions import Call, Operand
from gensor_gym.dataflow.nodes import Broadcast, Contract, Map, Node, Value
from gensor_gym.networks.channels import channel_vector, weight_axis
from gensor_gym.networks.network import Network, needed


def folded(network: Network) -> Network:
    """The same network with less to do at each call; the arrays are computed in float64 and rounded once."""
    return _with_constants_made(_with_factors_in_weights(_with_constants_made(network)))


def _with_constants_made(network: Network) -> Network:
    """Values of constants alone become constants, unless they only repeat: those would be larger."""
    graph, arrays = network.graph, {name: array.astype(np.float64) for name, array in network.constants.items()}
    kept: list[tuple[str, Node]] = []
    for name, node in graph.nodes:
        if name not in graph.returns and not isinstance(node, Broadcast) and all(one in arrays for one in node.inputs):
            arrays[name] = evaluate_node(node, {one: exact(arrays[one]) for one in node.inputs}).value
        else:
            kept.append((name, node))
    inputs = (*graph.inputs, *(graph.values[name].as_constant() for name in arrays if name in network.nodes))
    return _pruned(network, inputs, kept, arrays)


def _pruned(
    network: Network, inputs: tuple[Value, ...], nodes: list[tuple[str, Node]], arrays: Mapping[str, np.ndarray]
) -> Network:
    """A network of these nodes and constants, without what no output needs."""
    graph = needed(network.graph.name, inputs, nodes, network.graph.returns)
    constants = {value.name: arrays[value.name].astype(np.float32) for value in graph.inputs if value.constant}
    return Network(graph, constants, {name: network.origins[name] for name, _ in graph.nodes if name in network.origins})


def _with_factors_in_weights(network: Network) -> Network:
    """Products that are multiplied by a constant of each channel, and read by nothing else, have it in their weights."""
    graph, made = network.graph, dict(network.nodes)
    arrays, fresh = dict(network.constants), []
    gone: dict[str, str] = {}
    for name, node in graph.nodes:
        found = None if name in graph.returns else _factor(network, node)
        if found is None:
            continue
        product, factor = found
        contract = made[product]
        assert isinstance(contract, Contract)
        place, axis = weight_axis(contract.operator) or (0, 0)
        weight = contract.sources[place]
        shape = [1] * arrays[weight].ndim
        shape[axis] = -1
        own = f"{weight}_for_{product}"
        arrays[own] = arrays[weight].astype(np.float64) * arrays[factor].astype(np.float64).reshape(shape)
        fresh.append(Value(own, arrays[weight].shape, "float32", constant=True))
        sources = tuple(own if number == place else source for number, source in enumerate(contract.sources))
        made[product] = dataclasses.replace(contract, sources=sources)
        gone[name] = product
    nodes = [(name, _renamed(made[name], gone)) for name, _ in graph.nodes if name not in gone]
    return _pruned(network, (*graph.inputs, *fresh), nodes, arrays)


def _factor(network: Network, node: Node) -> tuple[str, str] | None:
    """(product, constant vector) of a map that multiplies the one by the other; None for all else."""
    if not (isinstance(node, Map) and isinstance(node.expression, Call) and node.expression.function == "multiply"):
        return None
    parts = node.expression.arguments
    for one, other in (parts, parts[::-1]):
        if not (isinstance(one, Operand) and isinstance(other, Operand)):
            return None
        contract = network.nodes.get(one.name)
        if isinstance(contract, Contract) and len(network.graph.readers[one.name]) == 1 and one.name not in network.graph.returns:
            vector = channel_vector(network, other.name, contract.operator)
            place = weight_axis(contract.operator)
            if vector in network.constants and place is not None and contract.sources[place[0]] in network.constants:
                return one.name, str(vector)
    return None


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    """A node that reads other values in place of some."""
    return node.reading({one: names.get(one, one) for one in node.inputs}) if set(node.inputs) & set(names) else node
