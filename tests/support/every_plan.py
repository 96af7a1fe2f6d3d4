"""All plans of a small network, by set partitions and `Plan.fault` alone, and small random networks with prices from a hash."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator

import numpy as np

from gensor_gym import hardware
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.dataflow.text import parse
from gensor_gym.networks.fusion.blocks import block_of
from gensor_gym.networks.fusion.prices import Prices
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece, implied
from gensor_gym.networks.plan import Plan, ordered, reads_of
from gensor_gym.networks.planning.drawn import network_of


class HashedPrices(Prices):
    """Random prices of legal pieces, the same for the same piece; larger pieces tend to be cheaper than their parts."""

    def __init__(self, network: Network, seed: int) -> None:
        """`seed` chooses the prices."""
        super().__init__(network, hardware.get("cascade_lake"))
        self.seed = seed

    def of(self, piece: Piece) -> float:
        """A number of 1 to 2 by the hash of the piece, and 0.3 for each node; infinite if no kernel supports it."""
        try:
            piece.step(self.network)
        except ValueError:
            return math.inf
        found = hashlib.sha256(f"{self.seed} {piece.anchor} {sorted(piece.nodes)}".encode()).digest()
        return 1.0 + int.from_bytes(found[:4], "little") / 2**32 + 0.3 * len(piece.nodes)


def small(seed: int, most: int = 8) -> Network:
    """A random network of up to `most` nodes that need a kernel: products, maps, reductions and transposes of square matrices."""
    rng = np.random.default_rng(seed)
    names, lines = ["x"], list[str]()
    for number in range(int(rng.integers(4, most + 1))):
        one, other = (names[-int(rng.integers(1, min(4, len(names)) + 1))] for _ in range(2))
        way = rng.choice(4, p=(0.25, 0.45, 0.2, 0.1))
        text = (
            f"contract({one}, {other}, operator='gemm(m=16, n=16, k=16)')",
            f"maximum({one}, 0.0)" if seed % 2 else f"{one} + {other} * {number + 2}.0",
            f"reduce_max({one}, axes=[1])", f"transpose({one}, order=[1, 0])",
        )[way]  # fmt: skip
        lines += [f"    v{number} = {text}"] if way != 2 else [f"    m{number} = {text}", f"    v{number} = {one} - m{number}"]
        names.append(f"v{number}")
    read = [word for line in lines for word in re.findall(r"[xv]\d*", line.split(" = ", 1)[1])]
    ends = [name for name in names[1:] if name not in read]
    text = "\n".join(lines)
    return network_of(parse(f"def f(x: float32[16, 16]):\n{text}\n    return {', '.join(ends)}"))


def every_plan(network: Network, prices: Prices) -> Iterator[tuple[float, Plan]]:
    """(seconds, plan) of all legal plans whose pieces are linked by what they read, each set of nodes at its cheapest anchor."""
    names = [name for name, _ in network.graph.nodes if not network.is_free(name)]
    known: dict[frozenset[str], Piece | None] = {}

    def piece_of(group: frozenset[str]) -> Piece | None:
        if group not in known:
            known[group] = _cheapest(network, prices, group)
        return known[group]

    def covered(left: list[str]) -> Iterator[list[Piece]]:
        if not left:
            yield []
            return
        first, *rest = left
        for number in range(1 << len(rest)):
            group = frozenset([first, *(name for place, name in enumerate(rest) if number >> place & 1)])
            if (piece := piece_of(group)) is not None:
                for others in covered([name for name in rest if name not in group]):
                    yield [piece, *others]

    for pieces in covered(names):
        plan = ordered(network, pieces)
        if plan is not None and not plan.fault:
            yield prices.total(pieces), plan


def _cheapest(network: Network, prices: Prices, group: frozenset[str]) -> Piece | None:
    """The cheapest legal piece of a set of nodes; None if there is none, or if its nodes are not linked."""
    inside = {next(iter(group))}
    links = [(name, one) for name in group for one in reads_of(network, Piece((name,), "row")) & group]
    while grown := {end for pair in links if inside & set(pair) for end in pair} - inside:
        inside |= grown
    if inside != group:
        return None
    products = [name for name in group if isinstance(network.nodes[name], Contract)]
    host = products if len(products) == 1 else []
    nodes = tuple(sorted(group, key=lambda name: (name not in host, network.places[name])))
    some = [Piece(nodes, implied(network, nodes)), *([Piece(nodes, "panel")] if host else [])]
    blocks = (block_of(network, name, copies) for name in products for copies in (False, True))
    some += [block for block in blocks if block is not None and set(block.nodes) == group]
    return min((piece for piece in some if prices.of(piece) < math.inf), key=prices.of, default=None)
