"""Changes of a plan's loops by one decision: a piece joins the loop before it, or begins its own loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import Plan

MOST_ROWS = 256
"""Most rows of a task, which are enough to hide the reading of weights from a shared cache behind arithmetic."""


def mergers(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield (text of a decision, changed plan) for each change in which a piece joins the loop before it or begins its own.

    A joining piece takes the rows of the loop. If it makes a new loop with the piece before it, its rows are any power of two up
    to `MOST_ROWS`.
    """
    for number, piece in enumerate(plan.pieces[1:], 1):
        before = loop_before(plan.pieces, number)
        if piece.follows:
            changes = [(f"part {piece.nodes[0]} from {plan.pieces[number - 1].nodes[0]}", 0)]
        else:
            sizes = [before[1].follows] if len(before) > 1 else [1 << power for power in range(MOST_ROWS.bit_length())]
            changes = [(f"go on with {piece.nodes[0]} after {before[-1].nodes[0]} by {rows}", rows) for rows in sizes]
        for decision, rows in changes:
            yield decision, _with(plan, number, rows)


def _with(plan: Plan, number: int, rows: int) -> Plan:
    """Return the plan with `follows=rows` for piece `number` and for the later pieces of its loop."""
    pieces = list(plan.pieces)
    pieces[number] = dataclasses.replace(pieces[number], follows=rows)
    later = number + 1
    while rows and later < len(pieces) and pieces[later].follows:
        pieces[later] = dataclasses.replace(pieces[later], follows=rows)
        later += 1
    return Plan(plan.network, tuple(pieces))


def loop_before(pieces: Sequence[Piece], number: int) -> list[Piece]:
    """Return the pieces of the loop before the piece with index `number`."""
    first = number - 1
    while pieces[first].follows:
        first -= 1
    return list(pieces[first:number])
