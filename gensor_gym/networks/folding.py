"""Folding of constants: expressions of constants are computed once, and constant factors are multiplied into weights.

For example, a batch normalisation after a product is a factor and an addend per channel. The factor goes into the weights; the
addend stays as a bias.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gensor_gym.dataflow.bounds import exact
from gensor_gym.dataflow.channels import channel_axes, channel_vector
from gensor_gym.dataflow.evaluate import evaluate_node
from gensor_gym.dataflow.expressions import Call, Operand
from gensor_gym.dataflow.joins import with_parts_of_their_own
from gensor_gym.dataflow.nodes import STORED, Broadcast, Contract, Map, Node, Reshape, Transpose, Triangle, Value
from gensor_gym.networks.fusion.requantized import requantized
from gensor_gym.networks.moves.factors import with_factors_after
from gensor_gym.networks.moves.shuffles import Shuffles
from gensor_gym.networks.moves.slices import slices_first
from gensor_gym.networks.network import Network, in_order, pruned
from gensor_gym.operators.inputs import decode
from gensor_gym.operators.types import Operator


def folded(network: Network) -> Network:
    """Return an equivalent network with less work at each call: constants are folded, and fewer nodes move data.

    Its constants are computed in float64 and rounded once.
    """
    made = with_constants_made(_with_factors_in_weights(with_constants_made(network)))
    made = with_constants_made(requantized(made))
    return with_triangles(with_joins_in_place(_with_rows_moved(_with_slices_first(with_factors_after(made)))))


def with_triangles(network: Network) -> Network:
    """Mark each constant that is a triangle, such as a causal mask, as one (`Value.triangle`). Return the network."""
    constants, graph = network.constants, network.graph
    found = {name: known for name, array in constants.items() if (known := Triangle.of(array, graph.values[name].dtype))}
    inputs = tuple(dataclasses.replace(value, triangle=found.get(value.name)) for value in graph.inputs)
    return dataclasses.replace(network, graph=dataclasses.replace(graph, inputs=inputs)) if found else network


def _with_rows_moved(network: Network) -> Network:
    made = Shuffles(network.graph)
    if not made.ids:
        return network
    fresh = (Value(name, ids.shape, "int32", constant=True) for name, ids in made.ids.items())
    moved = pruned(network, (*network.graph.inputs, *fresh), in_order(made.nodes), {**network.constants, **made.ids})
    return _with_origins(moved, network, made.instead)


def _with_slices_first(network: Network) -> Network:
    nodes, served = slices_first(network)
    return _with_origins(pruned(network, network.graph.inputs, nodes, network.constants), network, served) if served else network


def _with_origins(made: Network, network: Network, instead: Mapping[str, str]) -> Network:
    """Add the origins (torch operations) of the new nodes of `made`.

    `instead` maps a new node to the node of `network` whose origin it gets.
    """
    origins = {one: network.origins[old] for one, old in instead.items() if one in made.nodes and old in network.origins}
    return dataclasses.replace(made, origins={**made.origins, **origins})


def with_joins_in_place(network: Network) -> Network:
    """Copy the parts of concatenations that cannot be computed in place (`dataflow.joins`). Return the network."""
    nodes, copies = with_parts_of_their_own(network.graph)
    values = network.graph.values
    kinds = {(copy, values[whole].dtype) for copy, whole in copies.items() if values[whole].dtype in STORED}
    made = pruned(network, network.graph.inputs, nodes, network.constants, kinds)
    return _with_origins(made, network, copies)


def with_constants_made(network: Network) -> Network:
    """Compute all values that depend only on constants, and make them constants. Return the new network.

    Broadcasts stay nodes, because their values would be larger. So do outputs.
    """
    graph, arrays = network.graph, dict(network.constants)
    kept: list[tuple[str, Node]] = []
    for name, node in graph.nodes:
        if name not in graph.returns and not isinstance(node, Broadcast) and all(one in arrays for one in node.inputs):
            arrays[name] = _made(node, arrays, name in graph.whole)
        else:
            kept.append((name, node))
    inputs = (*graph.inputs, *(graph.values[name].as_constant() for name in arrays if name in network.nodes))
    return pruned(network, inputs, kept, arrays)


def _made(node: Node, arrays: Mapping[str, np.ndarray], is_whole: bool) -> np.ndarray:
    """Compute a node whose inputs are constants, in float64 or int64. A transpose or reshape keeps the type and may be a view."""
    if isinstance(node, Transpose):
        return np.transpose(arrays[node.source], node.order)
    if isinstance(node, Reshape):
        return np.reshape(arrays[node.source], node.to)
    given = {one: arrays[one] if arrays[one].dtype.kind == "i" else _numbers(arrays[one]) for one in node.inputs}
    return evaluate_node(node, {one: exact(array) for one, array in given.items()}, is_whole).value


def _numbers(array: np.ndarray) -> np.ndarray:
    """Convert a constant to float64. bfloat16 is stored as its bits."""
    return decode(array, "bfloat16").astype(np.float64)


def _with_factors_in_weights(network: Network) -> Network:
    """Multiply constant factors of a product's channels, as in normalisations, into its weights. Return the new network.

    The maps that multiplied or added constants become one map that adds a constant, under the name of the last map.
    """
    graph, made = network.graph, dict(network.nodes)
    arrays, fresh = dict(network.constants), list[Value]()
    for name, node in graph.nodes:
        chain = _chain(network, name) if isinstance(node, Contract) and node.operator.dtype != "int8" else None
        if chain is None or not isinstance(node, Contract):
            continue
        weight, own = node.sources[chain.place], f"{node.sources[chain.place]}_of_{name}"
        along = [-1 if axis == chain.axis else 1 for axis in range(arrays[weight].ndim)]
        kind = node.operator.dtype
        arrays[own] = _times(decode(arrays[weight], kind), chain.factor.reshape(along))
        sources = tuple(own if place == chain.place else source for place, source in enumerate(node.sources))
        shape = graph.values[name].shape
        addend = f"addend_of_{name}"
        arrays[addend] = chain.addend.reshape([-1] + [1] * (len(shape) - 1 - node.operator.channel_dimension))
        fresh += [Value(one, arrays[one].shape, kind, constant=True) for one in (own, addend)]
        for passed in chain.maps:
            del made[passed]
        made[name] = dataclasses.replace(node, sources=sources)
        made[f"{addend}_wide"] = Broadcast(addend, shape)
        made[chain.maps[-1]] = Map(Call("add", (Operand(name), Operand(f"{addend}_wide"))))
    return pruned(network, (*graph.inputs, *fresh), in_order(made), arrays)


def _times(array: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Multiply in float64 and round once to float32. NumPy works in chunks, without a float64 copy of the array."""
    made = np.empty(np.broadcast_shapes(array.shape, factor.shape), np.float32)
    np.multiply(array, factor, out=made, dtype=np.float64, casting="same_kind")
    return made


@dataclass
class _Chain:
    """Successive maps after a product that multiply its channels by constants, or add constants to them.

    `factor` and `addend` [channels] are their joint effect. `place` is the index of the constant weights among the product's
    operands, `axis` the axis of the weights that has the channels.
    """

    place: int
    axis: int
    factor: np.ndarray
    addend: np.ndarray
    maps: list[str]


def _chain(network: Network, product: str) -> _Chain | None:
    """Find the longest sequence of maps after a product that multiply its channels by constants or add constants.

    None if the product has no constant weights, or if all factors are 1.
    """
    contract, graph = network.nodes[product], network.graph
    assert isinstance(contract, Contract)
    op = contract.operator
    places = [(place, axis) for place, axis in channel_axes(op).items() if contract.sources[place] in network.constants]
    if not places:
        return None
    channels = op.output.shape[op.channel_dimension]
    chain = _Chain(*places[0], np.ones(channels), np.zeros(channels), [])
    last = product
    while last not in graph.returns and len(graph.readers[last]) == 1:
        (reader,) = graph.readers[last]
        found = _of_channel(network, network.nodes[reader], last, op)
        if found is None:
            break
        function, vector = found
        if function == "multiply":
            chain.factor, chain.addend = chain.factor * vector, chain.addend * vector
        else:
            chain.addend = chain.addend + vector
        chain.maps.append(reader)
        last = reader
    return chain if (chain.factor != 1.0).any() else None


def _of_channel(network: Network, node: Node, element: str, op: Operator) -> tuple[str, np.ndarray] | None:
    """Return the function and the constants of a map that adds one constant per channel to `element`, or multiplies by it.

    They are ("add" or "multiply", float64 [channels]). None for other nodes.
    """
    if not (isinstance(node, Map) and isinstance(node.expression, Call) and node.expression.function in ("add", "multiply")):
        return None
    names = [part.name for part in node.expression.arguments if isinstance(part, Operand)]
    if len(names) != 2 or element not in names or names[0] == names[1]:
        return None
    vector = channel_vector(network.graph, names[1 - names.index(element)], op)
    if vector is None or vector not in network.constants:
        return None
    return node.expression.function, _numbers(network.constants[vector]).reshape(-1)
