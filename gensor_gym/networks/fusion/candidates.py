"""All legal pieces of a network with their prices: every plan of `Fuse-v0` is made of them.

The nodes of a piece are linked by the values that they read, and every node on a path between two of them is in the piece. A
piece with one product has anchor tile or panel, a piece without a product anchor row. All other pieces are blocks (`block_of`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from gensor_gym.dataflow.nodes import Contract
from gensor_gym.networks.fusion.blocks import block_of
from gensor_gym.networks.fusion.dependences import Dependences, places
from gensor_gym.networks.fusion.prices import Prices
from gensor_gym.networks.pieces import Piece

MOST_SETS = 1 << 17
"""Most sets of nodes that are tried; a network with more has no certified optimum. They take some minutes."""


@dataclass(frozen=True)
class Candidate:
    """A legal piece at its cheapest anchor."""

    nodes: int
    """Set of its nodes (`Dependences`)."""
    piece: Piece
    seconds: float


class TooMany(ValueError):
    """A network with more sets of nodes than `MOST_SETS`, or whose pieces take too long to price."""


def candidates(of: Dependences, prices: Prices, until: float = math.inf) -> list[Candidate]:
    """Return all legal pieces, each set of nodes at its cheapest anchor.

    TooMany if there are too many sets to try, or after `until`, by the clock of this process's processor time.
    """
    found = dict[int, Candidate]()
    for some in _linked(of):
        if time.process_time() > until:
            raise TooMany(f"{of.network}: its pieces take too long to price, expected fewer for an optimum")
        for piece in (of.piece(some), *([of.piece(some, "panel")] if some & of.products and some & (some - 1) else [])):
            keep_cheaper(found, some, piece, prices)
    for piece in blocks(of):
        keep_cheaper(found, of.bits(piece.nodes), piece, prices)
    return list(found.values())


def blocks(of: Dependences) -> Iterator[Piece]:
    """Yield, for each product of a network, the blocks whose second product it is, legal or not, with and without copies."""
    for name in of.names:
        if isinstance(of.network.nodes[name], Contract):
            yield from {block for copies in (False, True) if (block := block_of(of.network, name, copies)) is not None}


def keep_cheaper(found: dict[int, Candidate], some: int, piece: Piece, prices: Prices) -> None:
    """Store a legal piece for the set of nodes `some` if it is cheaper than the piece that `found` has for this set."""
    seconds = prices.of(piece)
    if seconds < math.inf and (some not in found or seconds < found[some].seconds):
        found[some] = Candidate(some, piece, seconds)


def _linked(of: Dependences) -> list[int]:
    """Return connected sets with at most one product that contain all nodes on paths between their nodes."""
    found = dict.fromkeys(1 << one for one in range(len(of.names)))
    waiting = list(found)
    while waiting:
        some = waiting.pop()
        near = 0
        for one in places(some):
            near |= of.reads[one] | of.readers[one]
        for one in places(near & ~some):
            grown = of.hull(some | 1 << one)
            if grown not in found and _may_be(of, grown):
                found[grown] = None
                waiting.append(grown)
        if len(found) > MOST_SETS:
            raise TooMany(f"{of.network}: more than {MOST_SETS} sets of nodes, expected fewer for an optimum")
    return list(found)


def _may_be(of: Dependences, some: int) -> bool:
    """Return whether a set has at most one product and computes in one type, as every set inside a piece does."""
    hosts = some & of.products
    return hosts & (hosts - 1) == 0 and some & of.whole in (0, some)
