"""Moves a constant factor from an operand of a product to the product's result.

The operand, such as queries from an array of queries, keys and values, is then only a rearrangement of another value. A block of
products reads this value in place (`fusion.blocks`), whereas a factor of the operand would need a kernel and memory of its own.
"""

from __future__ import annotations

import dataclasses

from gensor_gym.dataflow.expressions import Call, Constant, Expression, Operand
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Contract, Map, Node, Reshape, Slice, Transpose
from gensor_gym.networks.network import Network


def with_factors_after(network: Network) -> Network:
    """Move constant factors from operands of float32 products to the products' results.

    Only factors of slices and transposes are moved, which kernels can then read in place. Return the new network, or the same one
    if there is no such factor.
    """
    graph, nodes, origins = network.graph, list[tuple[str, Node]](), dict(network.origins)
    scaled = {
        _shaped(graph, name): found for name, node in graph.nodes if isinstance(node, Contract)
        if (found := [one for source in node.sources if (one := _scaled(graph, source)) is not None])
    }  # fmt: skip
    moved = {one: _operand(graph.makers[one]) for found in scaled.values() for one in found}
    for name, node in graph.nodes:
        if name in moved:
            continue
        node = node.reading({one: moved.get(one, one) for one in node.inputs})
        if name in scaled:
            plain = _fresh(f"{name}_plain", graph)
            nodes.append((plain, node))
            origins |= {plain: origins[name]} if name in origins else {}
            node = Map(_times(Operand(plain), [graph.makers[one] for one in scaled[name]]))
        nodes.append((name, node))
    graph = dataclasses.replace(graph, nodes=tuple(nodes))
    return dataclasses.replace(network, graph=graph, origins=origins) if moved else network


def _shaped(graph: Dataflow, name: str) -> str:
    """Follow the reshapes after a product while each is the only reader of the value before it. Return the last one's name."""
    while name not in graph.returns and len(graph.readers[name]) == 1:
        (reader,) = graph.readers[name]
        if not isinstance(graph.makers[reader], Reshape):
            break
        name = reader
    return name


def _scaled(graph: Dataflow, name: str) -> str | None:
    """Find the map that multiplies a product's operand by a constant; between the two are only transposes and reshapes.

    Return its name; None without such a map.
    """
    while len(graph.readers[name]) == 1 and name not in graph.returns:
        node = graph.makers.get(name)
        if isinstance(node, Map):
            is_float = name not in graph.whole and graph.values[name].dtype == graph.dtype
            source = _operand(node)
            moves = source and isinstance(graph.makers.get(graph.behind(source, (Reshape,))[-1]), Slice | Transpose)
            return name if is_float and moves else None
        if not isinstance(node, Reshape | Transpose):
            return None
        name = node.source
    return None


def _operand(node: Node) -> str:
    """Return the value that a map multiplies or divides by a constant; empty for other nodes."""
    match node:
        case Map(Call("multiply" | "divide", (Operand(name), Constant()))) | Map(Call("multiply", (Constant(), Operand(name)))):
            return name
    return ""


def _times(product: Expression, maps: list[Node]) -> Expression:
    for node in maps:
        assert isinstance(node, Map) and isinstance(node.expression, Call)
        arguments = tuple(product if isinstance(one, Operand) else one for one in node.expression.arguments)
        product = Call(node.expression.function, arguments)
    return product


def _fresh(name: str, graph: Dataflow) -> str:
    while name in graph.values:
        name += "_"
    return name
