"""The plan of fine-grain fusion: what a host of an inner anchor can take is computed there, the rest as `cut_all` has it.

After the fine-grain fusion of oneDNN Graph Compiler (Li et al., arXiv 2301.01333): the innermost anchor that is accepted, and
none at which fewer threads would find work.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from gensor_gym.chains.chain import chain_of
from gensor_gym.chains.panel import panel_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.networks.fusion.blocks import block_of
from gensor_gym.networks.fusion.decisions import panel_of_both, with_piece
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import Plan, cut_all, ordered, reads_of

LEAST_TASKS = 8
"""Blocks of `_ROWS` rows that a host must have to be accepted, so that threads find work: a product alone also cuts columns."""
_ROWS = 16
_chain_of = lru_cache(maxsize=1024)(chain_of)
"""Layers of networks are equal: each is looked at once."""


def fine(network: Network) -> Plan:
    """`cut_all`, but that two products with a row nest between them are one piece where a chain can be made of them.

    Of what is left, rows that read a product are computed with it where a panel can be made of them.
    """
    plan = cut_all(network)
    for name, node in network.graph.nodes:
        if isinstance(node, Contract) and (block := block_of(network, name)) is not None and is_worth_while(network, block):
            pieces = with_piece(plan.pieces, block)
            joined = None if pieces is None else ordered(network, pieces)
            plan = plan if joined is None or joined.fault else joined
    return _with_panels(plan)


def _with_panels(plan: Plan) -> Plan:
    """Each product takes the rows that read it, where these are whole rows of its and there are enough of them for threads."""
    readers = _readers(plan)
    for name, node in plan.network.graph.nodes:
        while isinstance(node, Contract) and (taken := _taken(plan, name, readers)) is not None:
            plan, readers = taken, _readers(taken)
    return plan


def _readers(plan: Plan) -> Mapping[str, list[Piece]]:
    """Of the first node of every piece the pieces that read what it makes, in order, after the piece itself."""
    found = {piece.nodes[0]: [piece] for piece in plan.pieces}
    maker = {name: piece.nodes[0] for piece in plan.pieces for name in piece.nodes}
    for piece in plan.pieces:
        for first in {maker[one] for one in reads_of(plan.network, piece) if one in maker}:
            found[first].append(piece)
    return found


def _taken(plan: Plan, product: str, readers: Mapping[str, list[Piece]]) -> Plan | None:
    """The plan where a product has taken rows; None where there are none left, or it is in a piece that another begins."""
    for rows in readers.get(product, ())[1:]:
        host = readers[product][0]
        panel = panel_of_both(plan.network, host, rows)
        if panel is not None and _has_rows(plan.network, panel):
            joined = ordered(plan.network, [*(piece for piece in plan.pieces if piece not in (host, rows)), panel])
            if joined is not None and not joined.fault:
                return joined
    return None


def _has_rows(network: Network, piece: Piece) -> bool:
    """Whether a panel is made of it that has rows for threads."""
    try:
        step = piece.step(network)
        assert isinstance(step.computation, Dataflow)
        return _rows_of_panel(step.computation) >= LEAST_TASKS
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def _rows_of_panel(computation: Dataflow) -> int:
    return panel_of(computation).nest.rows


def is_worth_while(network: Network, piece: Piece) -> bool:
    """Whether a chain is made of it that has work for threads, and no weights that a product alone would read packed."""
    try:
        step = piece.step(network)
        assert isinstance(step.computation, Dataflow)
        chain = _chain_of(step.computation)
    except ValueError:
        return False
    given = {value.name: root for value, root in zip(step.computation.inputs, step.reads, strict=True)}
    weights = any(given[matrix.tensor] in network.constants for matrix in (chain.first, chain.second))
    return not weights and chain.elements * -(-chain.rows // _ROWS) >= LEAST_TASKS
