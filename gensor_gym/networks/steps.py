"""The computation of one kernel of a network: an operator with an epilogue, or a fused operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gensor_gym.dataflow.graph import VIEWS, Dataflow
from gensor_gym.dataflow.nodes import Broadcast, Contract, Node, Reshape
from gensor_gym.dataflow.postops import post_op
from gensor_gym.networks.network import Network
from gensor_gym.operators.text import with_arguments
from gensor_gym.operators.traits import weights
from gensor_gym.operators.types import Operator


@dataclass(frozen=True)
class Step:
    """Work of one kernel: what it computes, and the names of the network's values that it reads and writes."""

    computation: Operator | Dataflow
    reads: tuple[str, ...]
    """Values in the order of the computation's inputs. Views are replaced by their roots (`Network.root_of`)."""
    writes: tuple[str, ...]


def step_of(network: Network, piece: Sequence[str]) -> Step:
    """Return the computation of a piece's nodes. ValueError names a node that cannot be computed together with the others."""
    products = [node for name in piece if isinstance(node := network.nodes[name], Contract)]
    alone = len(products) == 1 and network.nodes[piece[0]] == products[0]
    return _of_contract(network, products[0], piece) if alone else fused_step(network, piece)


def _of_contract(network: Network, contract: Contract, piece: Sequence[str]) -> Step:
    """Make the step of an operator, such as a product, pooling or sum, with the other nodes as its epilogue.

    The epilogue is computed on each finished element. ValueError names a node that it cannot contain.
    """
    op, reads, last = _in_memory(network, contract, piece[-1]), list(contract.sources), piece[0]
    for name in piece[1:]:
        if visible(network, last, piece):
            raise ValueError(f"{last} is read outside of its piece: expected {name} in another")
        found = post_op(network.graph, network.nodes[name], last, op)
        if found is None:
            raise ValueError(f"{name} = {network.nodes[name]} is no post-op of {last}: expected it in another piece")
        op = op.with_epilogue(found.stage)
        reads += found.reads
        last = name
    for name, tensor in zip((*reads, last), (*op.inputs, op.output), strict=True):
        if network.pitch_of(name) != tensor.pitch:
            raise ValueError(f"{piece[0]} reads {name}, whose rows are apart in memory: expected it to be read in another piece")
        if (kind := network.graph.values[network.root_of(name)].dtype) != tensor.dtype:
            raise ValueError(f"{piece[0]} reads or makes {name} of {kind}, expected {tensor.dtype}")
    if (constant := weights(op)) is not None and network.root_of(reads[op.reads.index(constant)]) in network.constants:
        op = op.freeze()
    return Step(op, tuple(network.root_of(name) for name in reads), (last,))


def _in_memory(network: Network, contract: Contract, last: str) -> Operator:
    """Return a node's operator for the positions of its image and of the result, the value `last`, in memory.

    ValueError if the operator needs pixels that follow one another.
    """
    pitches = {"image_pitch": network.pitch_of(contract.sources[0]), "result_pitch": network.pitch_of(last)}
    return with_arguments(contract.operator, **pitches) if any(pitches.values()) else contract.operator


def fused_step(network: Network, piece: Sequence[str]) -> Step:
    """Make the step of all nodes as one fused operator.

    Names in it are numbered, so that equal pieces have equal computations.
    """
    inside = set(piece)
    nodes: dict[str, Node] = {}
    given: list[str] = []
    if len({network.graph.type_of(name) for name in piece}) > 1:
        raise ValueError(f"{piece[0]} and {piece[-1]} compute in float32 and in int64: expected each in another piece")
    for name in piece:
        _add(network, name, inside, nodes, given)
    writes = [name for name in piece if visible(network, name, piece)]
    names = {name: f"x{number}" for number, name in enumerate(given)} | {name: f"v{number}" for number, name in enumerate(nodes)}
    values = network.graph.values
    inputs = tuple(replace(values[name], name=names[name], pitch=network.pitch_of(name)) for name in given)
    made = tuple((names[name], node.reading(names)) for name, node in nodes.items())
    whole = frozenset(names[name] for name in piece if name in network.graph.whole)
    rounded = frozenset((names[name], kind) for name, kind in network.graph.rounded if name in piece)
    pitches = frozenset((names[name], pitch) for name in writes if (pitch := network.pitch_of(name)))
    graph = Dataflow("fused", inputs, made, tuple(names[name] for name in writes), "", whole, rounded, pitches)
    return Step(graph, tuple(network.root_of(name) for name in given), tuple(writes))


def _add(network: Network, name: str, inside: set[str], nodes: dict[str, Node], given: list[str]) -> None:
    """Add a value to a piece's graph: to `nodes` after the values that it reads, or to the inputs `given`.

    `inside` are the nodes of the piece.
    """
    if name in nodes or name in given:
        return
    node = network.nodes.get(name)
    repeated = isinstance(network.nodes.get(network.root_of(name)), Broadcast)  # a broadcast is not in memory
    own = isinstance(node, Reshape) and (repeated or network.source_of(name) in inside)
    if node is None or not (name in inside or isinstance(node, Broadcast) or own):
        given.append(name)
        return
    for one in node.inputs:
        _add(network, one, inside, nodes, given)
    nodes[name] = node


def visible(network: Network, name: str, piece: Sequence[str]) -> bool:
    """Return whether a value, or a view of it, is an output of the network or read by a node outside the piece."""
    if any(reader not in piece for reader in readers_of(network, name)):
        return True
    return any(one in network.graph.returns for one in (name, *views_of(network, name)))


def views_of(network: Network, name: str) -> Iterator[str]:
    """Yield the names of all views of a value, including views of its views."""
    for reader in network.graph.readers[name]:
        if isinstance(network.nodes[reader], VIEWS):
            yield reader
            yield from views_of(network, reader)


def readers_of(network: Network, name: str) -> tuple[str, ...]:
    """Return the names of the nodes, except views, that read a value or a view of it; cached in the network."""
    key = "readers", name
    if key not in network.known:
        found = (reader for one in (name, *views_of(network, name)) for reader in network.graph.readers[one])
        network.known[key] = tuple(dict.fromkeys(one for one in found if not isinstance(network.nodes[one], VIEWS)))
    readers: tuple[str, ...] = network.known[key]
    return readers

