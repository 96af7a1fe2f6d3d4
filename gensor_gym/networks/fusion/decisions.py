"""Changes of a plan by one decision: cut a piece, join two pieces, make a panel or a block, or change loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gensor_gym.dataflow.nodes import Contract
from gensor_gym.networks.fusion.blocks import block_of
from gensor_gym.networks.fusion.mergers import mergers
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece, piece_of
from gensor_gym.networks.plan import Plan, cut_all, ordered, reads_of


def decisions(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield (text of a decision, changed plan) for every decision with a legal plan."""
    for decision, pieces in (*_cuts(plan), *_joins(plan), *_panels(plan), *_blocks(plan)):
        changed = ordered(plan.network, _with_loops(plan, pieces)) or ordered(plan.network, _with_loops(None, pieces))
        if changed is not None and not changed.fault:
            yield decision, changed
    for decision, changed in mergers(plan):
        if not changed.fault:
            yield decision, changed


def _with_loops(plan: Plan | None, pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with loops: a piece still follows its predecessor in a loop of `plan` if both pieces still exist."""
    there = {piece.nodes for piece in pieces}
    after: dict[tuple[str, ...], Piece] = {}
    for before, piece in pairwise(plan.pieces if plan else ()):
        if piece.follows and {before.nodes, piece.nodes} <= there:
            after[before.nodes] = piece
    found = list[Piece]()
    for piece in pieces:
        if piece not in after.values():
            found.append(dataclasses.replace(piece, follows=0))
            while found[-1].nodes in after:
                found.append(after[found[-1].nodes])
    return found


def _cuts(plan: Plan) -> Iterator[tuple[str, list[Piece]]]:
    """Yield (decision, pieces) for cuts of a piece in two at any of its nodes; a block is cut into the pieces of `cut_all`."""
    for piece in plan.pieces:
        others = [other for other in plan.pieces if other is not piece]
        if piece.anchor == "block":
            own = set(piece.nodes)
            yield f"cut {piece.nodes[0]}", [*others, *(one for one in cut_all(plan.network).pieces if own.issuperset(one.nodes))]
            continue
        for place in range(1, len(piece.nodes)):
            first, rest = piece.nodes[:place], piece_of(plan.network, piece.nodes[place:])
            heads = [piece_of(plan.network, first), *([Piece(first, "panel")] if piece.anchor == "panel" else [])]
            for head in heads:
                yield f"cut {rest.nodes[0]}", [*others, head, rest]


def _joins(plan: Plan) -> Iterator[tuple[str, list[Piece]]]:
    """Yield (decision, pieces) for joins of two pieces, if the second reads the first; the anchor follows from the first."""
    for one in plan.pieces:
        for other in plan.pieces:
            inner = {one.anchor, other.anchor} <= {"tile", "row"}
            if one is not other and inner and reads_of(plan.network, other) & set(one.nodes):
                joined = piece_of(plan.network, (*one.nodes, *other.nodes))
                yield f"join {other.nodes[0]} to {one.nodes[0]}", [*(p for p in plan.pieces if p not in (one, other)), joined]


def _panels(plan: Plan) -> Iterator[tuple[str, list[Piece]]]:
    """Yield (decision, pieces) for panels of a product, or of an existing panel, and a piece of rows that reads it."""
    for one in plan.pieces:
        for other in plan.pieces:
            panel = panel_of_both(plan.network, one, other)
            if panel is not None:
                others = [piece for piece in plan.pieces if piece not in (one, other)]
                yield f"take rows of {other.nodes[0]} to {one.nodes[0]}", [*others, panel]


def panel_of_both(network: Network, host: Piece, rows: Piece) -> Piece | None:
    """Return the panel of a product's piece `host` and a piece of rows that reads it; None for pieces of other kinds."""
    hosts = host.anchor in ("tile", "panel") and isinstance(network.nodes[host.nodes[0]], Contract)
    if hosts and rows.anchor == "row" and reads_of(network, rows) & set(host.nodes):
        return Piece((*host.nodes, *rows.nodes), "panel")
    return None


def _blocks(plan: Plan) -> Iterator[tuple[str, list[Piece]]]:
    """Yield (decision, pieces) for blocks of a product, the product before it and the nodes between."""
    for piece in plan.pieces:
        host = piece.nodes[0]
        if piece.anchor == "tile" and isinstance(plan.network.nodes[host], Contract):
            block = block_of(plan.network, host)
            pieces = None if block is None else with_piece(plan.pieces, block)
            if pieces is not None:
                yield f"take {host} into a block", pieces


def with_piece(pieces: Sequence[Piece], piece: Piece) -> list[Piece] | None:
    """Return the pieces after `piece` replaces all pieces with its nodes; None if such a piece has other nodes too."""
    taken = set(piece.nodes)
    kept = [other for other in pieces if taken.isdisjoint(other.nodes)]
    cut = [other for other in pieces if not taken.isdisjoint(other.nodes) and not taken.issuperset(other.nodes)]
    return None if cut else [*kept, piece]
