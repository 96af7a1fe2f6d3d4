"""Pieces of rows that read one another become one row nest, which saves a write and a read of the values between the pieces.

The rule `cut_all` puts the nodes of one operation together. Here a move, sum or normalisation joins the rows that read its value,
if the loops of one nest can compute both.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.gir.nest import RowNest, row_nest
from gensor_gym.gir.schedule import MOST_PLACED
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece, piece_of
from gensor_gym.networks.plan import Plan, ordered, reads_of

_nest = lru_cache(maxsize=4096)(row_nest)
"""`row_nest` with a cache, because a network has many equal layers."""


def with_rows_together(plan: Plan) -> Plan:
    """Return the plan in which pieces of rows join the pieces of rows that they read, if one nest computes both."""
    while (joined := next(_joined(plan), None)) is not None:
        plan = joined
    return plan


def _joined(plan: Plan) -> Iterator[Plan]:
    rows = [piece for piece in plan.pieces if piece.anchor == "row"]
    maker = {name: piece for piece in rows for name in piece.nodes}
    for piece in rows:
        for before in dict.fromkeys(maker[one] for one in sorted(reads_of(plan.network, piece)) if one in maker):
            both = _both(plan.network, before, piece)
            if both is None:
                continue
            changed = ordered(plan.network, [*(one for one in plan.pieces if one not in (before, piece)), both])
            if changed is not None and not changed.fault:
                yield changed


def _both(network: Network, before: Piece, piece: Piece) -> Piece | None:
    """Return the piece with the nodes of both, cached in the network; None if no nest computes each element or row once."""
    key = "rows", before.nodes, piece.nodes
    if key not in network.known:
        both = piece_of(network, sorted({*before.nodes, *piece.nodes}, key=network.places.__getitem__))
        network.known[key] = both if _is_once(_nest_of(network, before), _nest_of(network, both)) else None
    found: Piece | None = network.known[key]
    return found


def _is_once(first: RowNest | None, both: RowNest | None) -> bool:
    """Return whether the nest `both` can be scheduled, and computes each element or each row of the nest `first` once."""
    if first is None or both is None or len(both.crossing) > MOST_PLACED:
        return False
    return first.rows * first.columns in (both.rows * both.columns, both.rows)


def _nest_of(network: Network, piece: Piece) -> RowNest | None:
    try:
        computation = piece.step(network).computation
        return _nest(computation) if isinstance(computation, Dataflow) else None
    except ValueError:
        return None
