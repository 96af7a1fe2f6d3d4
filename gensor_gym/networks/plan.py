"""A plan: which nodes of a network are computed by one kernel, which kernels in one loop, as data that prints and parses back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gensor_gym.dataflow.nodes import Contract
from gensor_gym.networks.loops import loop_fault
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece, piece_of
from gensor_gym.networks.steps import Step


@dataclass(frozen=True)
class Plan:
    """Pieces in the order in which they run."""

    network: Network
    pieces: tuple[Piece, ...]

    def __str__(self) -> str:
        """A line for each piece. `Plan.parse` reads it."""
        return "\n".join(map(str, self.pieces))

    @classmethod
    def parse(cls, network: Network, text: str) -> Plan:
        """The plan that a text says; ValueError for what is no name of a node and no anchor."""
        return cls(network, tuple(Piece.parse(network, line) for line in text.splitlines() if line.strip()))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The computations in order; ValueError for a plan that is not legal."""
        if fault := self.fault:
            raise ValueError(f"a plan of {self.network.graph.name}: {fault}")
        return tuple(piece.step(self.network) for piece in self.pieces)

    @cached_property
    def fault(self) -> str:
        """Why the plan is not legal; empty where it is.

        Every node that is not free (`Network.is_free`) is in one piece, pieces read what is made before them, each has a kernel,
        and those of one loop read of one another rows of their own alone (`networks.loops`).
        """
        owned = [name for piece in self.pieces for name in piece.nodes]
        needed = [name for name, _ in self.network.graph.nodes if not self.network.is_free(name)]
        if sorted(owned) != sorted(needed):
            wrong = next(name for name in sorted({*owned, *needed}) if owned.count(name) != needed.count(name))
            return f"{wrong} is in {owned.count(wrong)} pieces, expected {needed.count(wrong)}"
        there = {value.name for value in self.network.graph.inputs}
        for piece in self.pieces:
            try:
                step = piece.step(self.network)
            except ValueError as error:
                return str(error)
            if missing := [one for name in step.reads for one in self.network.made_by(name) if one not in there]:
                return f"{piece.nodes[0]} reads {missing[0]}, which is not made before it"
            there.update(step.writes)
        return loop_fault(self.network, self.pieces)


def cut_all(network: Network) -> Plan:
    """Primitives with post-ops: each operation by itself, and after a product what its kernel can do with each element."""
    pieces: list[list[str]] = []
    of: dict[str, list[str]] = {}
    for name, node in network.graph.nodes:
        if network.is_free(name):
            continue
        piece = None if isinstance(node, Contract) else _joined(network, name, of, pieces)
        if piece is None:
            pieces.append(piece := [])
        piece.append(name)
        of[name] = piece
    place = {name: number for number, (name, _) in enumerate(network.graph.nodes)}
    return Plan(network, tuple(piece_of(network, piece) for piece in sorted(pieces, key=lambda piece: place[piece[-1]])))


def _joined(network: Network, name: str, of: dict[str, list[str]], pieces: list[list[str]]) -> list[str] | None:
    """The piece that takes one node more: of the product whose element it is made of, or of the same operation."""
    sources = [of[root] for one in network.nodes[name].inputs if (root := network.source_of(one)) in of]
    products = [piece for piece in pieces if piece in sources and isinstance(network.nodes[piece[0]], Contract)]
    origin = network.origins.get(name)
    same = [piece for piece in pieces if piece in sources and piece not in products and network.origins.get(piece[-1]) == origin]
    for piece in [*products[::-1], *same[::-1]]:
        if _can_take(network, piece, name):
            return piece
    return None


def _can_take(network: Network, piece: list[str], name: str) -> bool:
    """Whether a kernel computes the piece with the node, and nothing between them waits for the piece."""
    others = [one for one in network.nodes[name].inputs if network.source_of(one) not in piece]
    if network.depends(others, piece):
        return False
    try:
        piece_of(network, [*piece, name]).step(network)
    except ValueError:
        return False
    return True
