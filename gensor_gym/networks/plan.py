"""A plan: which nodes of a network each kernel computes, and which kernels share a loop. It can be printed and parsed."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from gensor_gym.dataflow.nodes import Contract, Slice
from gensor_gym.networks.loops import loop_fault, loops
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece, piece_of
from gensor_gym.networks.steps import Step, visible


@dataclass(frozen=True)
class Plan:
    """A partition of a network's nodes into kernels ("pieces"), in the order in which they run."""

    network: Network
    pieces: tuple[Piece, ...]

    def __str__(self) -> str:
        """Return a text with a line for each piece, which `Plan.parse` reads."""
        return "\n".join(map(str, self.pieces))

    @classmethod
    def parse(cls, network: Network, text: str) -> Plan:
        """Read a plan from its text; ValueError for an unknown node or anchor."""
        return cls(network, tuple(Piece.parse(network, line) for line in text.splitlines() if line.strip()))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Return the computations of the pieces in order. ValueError if the plan is illegal."""
        if fault := self.fault:
            raise ValueError(f"a plan of {self.network.graph.name}: {fault}")
        return tuple(piece.step(self.network) for piece in self.pieces)

    @cached_property
    def fault(self) -> str:
        """Return the reason why the plan is illegal; empty if it is legal.

        In a legal plan every node that is not free (`Network.is_free`) is in one piece, pieces read only earlier values, each
        piece has a kernel, and a task of a loop reads only its own rows of values computed in that loop (`networks.loops`).
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


def ordered(network: Network, pieces: Sequence[Piece]) -> Plan | None:
    """Sort pieces so that each comes after the pieces that it reads. Return the plan; None if they form a cycle.

    Pieces of one loop stay together.
    """
    made = {value.name for value in network.graph.inputs}
    left, found = [[pieces[number] for number in numbers] for numbers in loops(pieces)], list[Piece]()
    while left:
        ready = next((some for some in left if _can_begin(network, some, made)), None)
        if ready is None:
            return None
        left.remove(ready)
        found += ready
        made.update(name for piece in ready for name in piece.nodes)
    return Plan(network, tuple(found))


def _can_begin(network: Network, together: Sequence[Piece], made: Set[str]) -> bool:
    own = {name for piece in together for name in piece.nodes}
    return all(reads_of(network, piece) - own <= made for piece in together)


def reads_of(network: Network, piece: Piece) -> frozenset[str]:
    """Return the names of the values that a piece reads and does not compute, cached in the network.

    A view counts as its source, and a value that is computed in parts as its parts.
    """
    key = "reads", piece.nodes
    if key not in network.known:
        sources = dict.fromkeys(network.source_of(one) for name in piece.nodes for one in network.nodes[name].inputs)
        made = (one for source in sources for one in network.made_by(source))
        network.known[key] = frozenset(one for one in made if one not in piece.nodes)
    found: frozenset[str] = network.known[key]
    return found


def cut_all(network: Network) -> Plan:
    """Make the plan with one operation of the torch module per piece.

    A product's kernel also computes the elementwise operations after it, as its epilogue.
    """
    pieces: list[list[str]] = []
    of: dict[str, list[str]] = {}
    for name, node in network.graph.nodes:
        if network.is_free(name):
            continue
        piece = None if isinstance(node, Contract) else _joined(network, name, of)
        if piece is None:
            pieces.append(piece := [])
        piece.append(name)
        of[name] = piece
    pieces = _with_slices(network, pieces, of)
    pieces.sort(key=lambda piece: network.places[piece[-1]])
    plan = ordered(network, [piece_of(network, piece) for piece in pieces])
    assert plan is not None, "no piece took what waits for it"
    return plan


def _with_slices(network: Network, pieces: list[list[str]], of: dict[str, list[str]]) -> list[list[str]]:
    """Merge slices into the row nest (maps and reductions of each row) that alone reads them, so that it reads them in place.

    `of` maps a node to its piece. Return the pieces that are left.
    """
    kept = {id(piece): piece for piece in pieces}
    for rows in pieces[::-1]:
        if id(rows) not in kept or isinstance(network.nodes[rows[0]], Contract):
            continue
        while (part := _slices_read(network, rows, of)) is not None:
            del kept[id(part)]
            rows[:] = sorted([*rows, *part], key=network.places.__getitem__)
            of.update(dict.fromkeys(part, rows))
    return list(kept.values())


def _slices_read(network: Network, rows: list[str], of: dict[str, list[str]]) -> list[str] | None:
    """Find a piece of slices that only the piece `rows` reads and that its kernel can compute too. None if there is none."""
    roots = dict.fromkeys(network.source_of(one) for name in rows for one in network.nodes[name].inputs)
    for part in (of[root] for root in roots if root in of and of[root] is not rows):
        both = sorted([*rows, *part], key=network.places.__getitem__)
        own = all(isinstance(network.nodes[name], Slice) and not visible(network, name, both) for name in part)
        if own and _can_take(network, both[:-1], both[-1]):
            return part
    return None


def _joined(network: Network, name: str, of: dict[str, list[str]]) -> list[str] | None:
    """Find a piece whose kernel can compute a node too: that of a product which it reads, or of the node's own operation.

    None without one. `of` maps a node to its piece.
    """
    roots = map(network.source_of, network.nodes[name].inputs)
    sources = {network.places[piece[0]]: piece for root in roots if (piece := of.get(root)) is not None}
    latest = [sources[place] for place in sorted(sources, reverse=True)]
    products = [piece for piece in latest if isinstance(network.nodes[piece[0]], Contract)]
    origin = network.origins.get(name)
    same = [piece for piece in latest if piece not in products and network.origins.get(piece[-1]) == origin]
    for piece in [*products, *same]:
        if not _waits(network, piece, name, of) and _can_take(network, piece, name):
            return piece
    return None


def _waits(network: Network, piece: list[str], name: str, of: dict[str, list[str]]) -> bool:
    """Return whether a node must wait for the piece, and so cannot join it: its other inputs depend on the piece.

    They may depend on it through other pieces, too.
    """
    first = min(network.places[one] for one in piece)
    waiting = [one for one in network.nodes[name].inputs if network.source_of(one) not in piece]
    seen = set(waiting)
    while waiting:
        if (one := waiting.pop()) in piece:
            return True
        together = of.get(one, [one])
        late = max(network.places.get(node, -1) for node in together) > first
        fresh = {source for node in together for source in network.nodes[node].inputs} - seen if late else set()
        seen |= fresh
        waiting += fresh
    return False


def _can_take(network: Network, piece: list[str], name: str) -> bool:
    try:
        piece_of(network, [*piece, name]).step(network)
    except ValueError:
        return False
    return True
