"""The plan of coarse-grain fusion: `fine`, and neighbours that go along the same rows run in one parallel loop.

After the coarse-grain fusion of oneDNN Graph Compiler (Li et al., arXiv 2301.01333): adjacent fused operators with the same
outermost parallel loop become one. Which loop that is, a rule says here: blocks of rows, so many that every thread finds work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gensor_gym.networks.fusion.fine import LEAST_TASKS, fine
from gensor_gym.networks.fusion.mergers import MOST_ROWS, loop_before
from gensor_gym.networks.loops import loop_fault, rows_of
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import Plan

MOST_BYTES = 1 << 20
"""Of constants that the pieces of a loop read: every task goes through all of them, from a core's own cache where they fit."""


def fine_coarse(network: Network) -> Plan:
    """`fine`, and each piece goes on in the loop of the one before where that has rows for threads and small constants."""
    pieces = list(fine(network).pieces)
    for number in range(1, len(pieces)):
        together = [*loop_before(pieces, number), pieces[number]]
        rows = together[1].follows or _rows_of_task(network, together)
        joined = [together[0], *(dataclasses.replace(piece, follows=rows) for piece in together[1:])]
        if rows and _constants(network, joined) <= MOST_BYTES and not loop_fault(network, joined):
            pieces[number] = joined[-1]
    return Plan(network, tuple(pieces))


def _rows_of_task(network: Network, together: Sequence[Piece]) -> int:
    """Rows of a task, a power of two, so that there are `LEAST_TASKS`; 0 where there are fewer rows, or a piece has none."""
    try:
        count = min(rows_of(piece.step(network)).count for piece in together)
    except ValueError:
        return 0
    return min(MOST_ROWS, 1 << (count // LEAST_TASKS).bit_length() - 1) if count >= LEAST_TASKS else 0


def _constants(network: Network, pieces: Sequence[Piece]) -> int:
    """Bytes of those that pieces read."""
    read = {name for piece in pieces for name in piece.step(network).reads if name in network.constants}
    return sum(network.constants[name].nbytes for name in read)
