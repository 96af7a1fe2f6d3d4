"""Dependences among the nodes of a network that need a kernel, as sets of bits: bit i is the i-th such node of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

from gensor_gym.dataflow.nodes import Contract
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece, piece_of
from gensor_gym.networks.plan import reads_of


@dataclass(frozen=True, eq=False)
class Dependences:
    """Which nodes each node reads, and which nodes read it, among the nodes that are not free (`Network.is_free`)."""

    network: Network

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, in the graph's order."""
        return tuple(name for name, _ in self.network.graph.nodes if not self.network.is_free(name))

    @cached_property
    def number(self) -> dict[str, int]:
        """Name of a node -> its bit."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """Set of the nodes that each node reads."""
        own = (reads_of(self.network, piece_of(self.network, [name])) for name in self.names)
        return tuple(self.bits(one for one in some if one in self.number) for some in own)

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """Set of the nodes that read each node."""
        found = [0] * len(self.names)
        for reader, some in enumerate(self.reads):
            for one in places(some):
                found[one] |= 1 << reader
        return tuple(found)

    @cached_property
    def before(self) -> tuple[int, ...]:
        """Set of all nodes that each node depends on."""
        found: list[int] = []
        for some in self.reads:
            found.append(reduce(or_, (found[one] for one in places(some)), some))
        return tuple(found)

    @cached_property
    def after(self) -> tuple[int, ...]:
        """Set of all nodes that depend on each node."""
        found = [0] * len(self.names)
        for one in reversed(range(len(self.names))):
            found[one] = reduce(or_, (found[reader] for reader in places(self.readers[one])), self.readers[one])
        return tuple(found)

    @cached_property
    def products(self) -> int:
        """Set of the products and other operators."""
        return self.bits(name for name in self.names if isinstance(self.network.nodes[name], Contract))

    @cached_property
    def whole(self) -> int:
        """Set of the nodes that compute in int64."""
        return self.bits(name for name in self.names if name in self.network.graph.whole)

    def bits(self, names: Iterable[str]) -> int:
        """Return the set of the named nodes."""
        return sum(1 << self.number[name] for name in names)

    def hull(self, some: int) -> int:
        """Return the set with all nodes on paths between its nodes, without which kernels would wait for each other."""
        before = reduce(or_, (self.before[one] for one in places(some)))
        after = reduce(or_, (self.after[one] for one in places(some)))
        return some | (before & after)

    def nodes_of(self, some: int) -> tuple[str, ...]:
        """Return the names of a set's nodes as a piece lists them: the product first, then in the graph's order."""
        hosts = some & self.products
        host = (1 << places(hosts)[0]) if hosts and hosts & (hosts - 1) == 0 else 0
        return tuple(self.names[one] for one in (*places(host), *places(some & ~host)))

    def piece(self, some: int, anchor: str = "") -> Piece:
        """Return the piece of a set of nodes at an anchor, by default the anchor that follows from the piece's host."""
        nodes = self.nodes_of(some)
        return Piece(nodes, anchor) if anchor else piece_of(self.network, nodes)

    def is_ordered(self, groups: Iterable[int]) -> bool:
        """Return whether disjoint groups and all other nodes alone can run in some order: no group waits for itself."""
        left = list(groups)
        alone = (1 << len(self.names)) - 1 & ~reduce(or_, left, 0)
        left = sorted([*left, *(1 << one for one in places(alone))], key=lambda some: some & -some)
        done = 0
        while left:
            waiting = []
            for some in left:
                if self.read_by(some) & ~some & ~done:
                    waiting.append(some)
                else:
                    done |= some
            if len(waiting) == len(left):
                return False
            left = waiting
        return True

    def readers_of(self, some: int) -> int:
        """Return the nodes that read a node of the set `some`. A set is an int whose bit i stands for node i."""
        return reduce(or_, (self.readers[one] for one in places(some)), 0)

    def read_by(self, some: int) -> int:
        """Return the set of the nodes that the nodes of a set read."""
        return reduce(or_, (self.reads[one] for one in places(some)), 0)


def places(some: int) -> tuple[int, ...]:
    """Return the numbers of a set's bits, in order."""
    return tuple(_places(some))


def _places(some: int) -> Iterator[int]:
    while some:
        low = some & -some
        yield low.bit_length() - 1
        some ^= low
