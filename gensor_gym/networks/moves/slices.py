"""Moves slices of a transposed value before the transpose, so that each reader transposes only its own part.

An example is an array of queries, keys and values, computed by one product. If the whole array is transposed before it is sliced,
the transpose needs a kernel as soon as one part is normalised. If it is sliced first, each reader transposes its part as it
reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Contract, Map, Node, Reduce, Reshape, Slice, Transpose
from gensor_gym.networks.network import Network


def slices_first(network: Network) -> tuple[list[tuple[str, Node]], Mapping[str, str]]:
    """Slice before transposing, where only slices read a transposed value.

    Return (the nodes of the new graph in order, name of each new node -> the slice for which it was added).
    """
    graph, nodes, served = network.graph, list[tuple[str, Node]](), dict[str, str]()
    for name, node in graph.nodes:
        turned = graph.makers.get(node.source) if isinstance(node, Slice) else None
        if isinstance(node, Slice) and isinstance(turned, Transpose) and _is_cut(graph, node.source):
            part = f"{name}_part"
            while part in graph.values:
                part += "_"
            nodes.append((part, Slice(turned.source, turned.order[node.axis], node.start, node.stop)))
            node, served[part] = Transpose(part, turned.order), name
        nodes.append((name, node))
    return nodes, served


def _is_cut(graph: Dataflow, name: str) -> bool:
    """Return whether only slices, two or more, read a transposed value, and each slice's readers can transpose it as they read.

    At least one reader must be a map or reduction.
    """
    parts = graph.readers[name]
    if len(parts) < 2 or name in graph.returns or not all(isinstance(graph.makers[one], Slice) for one in parts):
        return False
    readers = [graph.makers[reader] for part in parts for reader in _readers(graph, part)]
    return any(isinstance(node, Map | Reduce) for node in readers) and all(map(_folds, readers))


def _folds(node: Node) -> bool:
    """Return whether a node's kernel can read transposed or sliced values in place."""
    return isinstance(node, Map | Reduce | Transpose) or (isinstance(node, Contract) and len(node.operator.spatial) == 3)


def _readers(graph: Dataflow, name: str) -> Iterator[str]:
    for reader in graph.readers[name]:
        yield from _readers(graph, reader) if isinstance(graph.makers[reader], Reshape) else [reader]
