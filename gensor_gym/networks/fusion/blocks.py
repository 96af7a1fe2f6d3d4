"""Blocks: two products with a row nest between them, and the transposes and slices before and after."""

from __future__ import annotations

from collections.abc import Iterable

from gensor_gym.dataflow.expressions import Operand
from gensor_gym.dataflow.graph import VIEWS
from gensor_gym.dataflow.nodes import Contract, Map, Slice, Transpose
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.steps import readers_of

_MOVES = (Transpose, Slice)


def block_of(network: Network, second: str, copies: bool = False) -> Piece | None:
    """Return the block with second product `second`: the product before it, the nodes between, and views before and after.

    With `copies`, copies before the block count as views, such as copies of keys that several heads share. None unless exactly
    one product comes before `second`.
    """
    node = network.nodes[second]
    assert isinstance(node, Contract)
    inside = {second}
    waiting = [node.sources[0]]
    products = [second]
    while waiting and len(products) <= 2:
        name = waiting.pop()
        if name in inside or name not in network.nodes:
            continue
        if not isinstance(network.nodes[name], VIEWS):
            inside.add(name)
        products += [name] * isinstance(network.nodes[name], Contract)
        if not isinstance(network.nodes[name], Contract):
            waiting += network.nodes[name].inputs
    if len(products) != 2:
        return None
    inside = _read_inside(network, inside, second)
    inside |= _moves_before(network, inside, products, copies) | _moves_after(network, second)
    return Piece(tuple(sorted(inside, key=network.places.__getitem__)), "block")


def _read_inside(network: Network, inside: set[str], last: str) -> set[str]:
    """Return `last` and the nodes of `inside` that only they read; a mask for all layers, for example, is in its own piece."""
    kept = set(inside)
    while others := {name for name in kept - {last} if any(reader not in kept for reader in readers_of(network, name))}:
        kept -= others
    return kept


def _moves_before(network: Network, inside: set[str], products: Iterable[str], copies: bool) -> set[str]:
    """Return transposes, slices and, with `copies`, copies that only the block reads and that make operands of its products."""
    found: set[str] = set()
    sources = {source for product in products for source in network.nodes[product].inputs}
    for name, node in reversed(network.graph.nodes):
        moves = isinstance(node, _MOVES) or (copies and isinstance(node, Map) and isinstance(node.expression, Operand))
        if not moves or network.is_free(name):
            continue
        readers = readers_of(network, name)
        if readers and all(reader in found or reader in inside for reader in readers) and _feeds(network, name, sources | found):
            found.add(name)
    return found


def _feeds(network: Network, name: str, wanted: set[str]) -> bool:
    """Return whether a value, or a view of it, is in `wanted` or is read by a node in `wanted`."""
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in wanted or any(reader in wanted for reader in network.graph.readers[one]):
            return True
        waiting += [reader for reader in network.graph.readers[one] if isinstance(network.nodes[reader], VIEWS)]
    return False


def _moves_after(network: Network, last: str) -> set[str]:
    """Return the transposes after a product, each the only reader of the value before it."""
    found: set[str] = set()
    while len(readers := readers_of(network, last)) == 1 and isinstance(network.nodes[readers[0]], Transpose):
        last = readers[0]
        found.add(last)
    return found
