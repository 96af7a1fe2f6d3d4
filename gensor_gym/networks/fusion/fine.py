"""The plan of fine-grain fusion: nodes are computed at an inner anchor of a host if they fit there, else as in `cut_all`.

It follows the fine-grain fusion of oneDNN Graph Compiler (Li et al., arXiv 2301.01333): the innermost possible anchor that leaves
enough tasks for all threads is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from gensor_gym.chains.apart import APART, is_faster_apart, least_apart
from gensor_gym.chains.chain import Chain, chain_of
from gensor_gym.chains.gpu.graph import GpuChainGraph
from gensor_gym.chains.panel import panel_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.fusion.blocks import block_of
from gensor_gym.networks.fusion.decisions import panel_of_both, with_piece
from gensor_gym.networks.fusion.rows import with_rows_together
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import Plan, cut_all, ordered, reads_of

LEAST_TASKS = 8
"""Fewest tasks of a piece for an unknown number of threads, so that all have work; a separate product can also split columns."""
_ROWS = {"cpu": 8, "gpu": 16}
"""Rows of the smallest block with more than one row: `chains.schedule.FIELDS`, and the fragments of `mma.sync`."""
_chain_of = lru_cache(maxsize=1024)(chain_of)
"""`chain_of` with a cache, because a network has many equal layers."""


def fine(network: Network, machine: Hardware | None = None) -> Plan:
    """Plan for a machine, by default any CPU: plan `cut_all`, but two products and the row nest between them are one piece.

    Such a piece needs a kernel for chains. Among the remaining pieces, rows join the product that they read if a panel supports
    them, and rows join rows that they read. On a GPU rows stay apart, because panels have no kernels there.
    """
    plan, gpu = cut_all(network), machine if machine is not None and machine.kind == "gpu" else None
    for name, node in network.graph.nodes:
        for block in _blocks(network, name, machine) if isinstance(node, Contract) else ():
            pieces = with_piece(plan.pieces, block)
            joined = None if pieces is None else ordered(network, pieces)
            if joined is not None and not joined.fault:
                plan = joined
                break
    return with_rows_together(_with_panels(plan)) if gpu is None else plan


def _blocks(network: Network, second: str, machine: Hardware | None) -> Iterator[Piece]:
    """Blocks of the second product that are worth while; on a GPU, the block that includes copies of operands comes first."""
    for copies in (True, False) if machine is not None and machine.kind == "gpu" else (False,):
        block = block_of(network, second, copies)
        if block is not None and is_worth_while(network, block, machine):
            yield block


def _with_panels(plan: Plan) -> Plan:
    """The plan in which products are panels with the rows that read them, where such a panel has rows for all threads."""
    readers = _readers(plan)
    for name, node in plan.network.graph.nodes:
        while isinstance(node, Contract) and (taken := _taken(plan, name, readers)) is not None:
            plan, readers = taken, _readers(taken)
    return plan


def _readers(plan: Plan) -> Mapping[str, list[Piece]]:
    """First node of each piece -> [the piece, then the pieces that read its values, in order]."""
    found = {piece.nodes[0]: [piece] for piece in plan.pieces}
    maker = {name: piece.nodes[0] for piece in plan.pieces for name in piece.nodes}
    for piece in plan.pieces:
        for first in {maker[one] for one in reads_of(plan.network, piece) if one in maker}:
            found[first].append(piece)
    return found


def _taken(plan: Plan, product: str, readers: Mapping[str, list[Piece]]) -> Plan | None:
    """The plan in which a product is a panel with one more piece that reads it; None if there is no such legal panel."""
    for rows in readers.get(product, ())[1:]:
        host = readers[product][0]
        panel = panel_of_both(plan.network, host, rows)
        if panel is not None and _has_rows(plan.network, panel):
            joined = ordered(plan.network, [*(piece for piece in plan.pieces if piece not in (host, rows)), panel])
            if joined is not None and not joined.fault:
                return joined
    return None


def _has_rows(network: Network, piece: Piece) -> bool:
    try:
        step = piece.step(network)
        assert isinstance(step.computation, Dataflow)
        return _rows_of_panel(step.computation) >= LEAST_TASKS
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def _rows_of_panel(computation: Dataflow) -> int:
    return panel_of(computation).nest.rows


def is_worth_while(network: Network, piece: Piece, machine: Hardware | None = None) -> bool:
    """Whether a block is a chain with work for all threads, and without constant weights, which a separate product packs.

    A CPU with fewer threads than `LEAST_TASKS` needs as many blocks as threads: with few rows, attention as a block takes on two
    threads 0.8 to 1.0 of the time of separate kernels, except in tile registers (`is_faster_apart`). On a GPU the block must also
    have a kernel that the model predicts to be faster than separate kernels. A block with one query and many keys has none.
    """
    gpu = machine if machine is not None and machine.kind == "gpu" else None
    try:
        step = piece.step(network)
        assert isinstance(step.computation, Dataflow)
        chain = _chain_of(step.computation) if gpu is None else _gpu_chain(step.computation, gpu)
    except ValueError:
        return False
    given = {value.name: root for value, root in zip(step.computation.inputs, step.reads, strict=True)}
    weights = any(given[matrix.tensor] in network.constants for matrix in (chain.first, chain.second))
    if machine is not None and gpu is None and is_faster_apart(chain, machine):
        return False
    tasks = LEAST_TASKS if machine is None else min(LEAST_TASKS, machine.units)
    return not weights and chain.elements * -(-chain.rows // _ROWS["cpu" if gpu is None else "gpu"]) >= tasks


@lru_cache(maxsize=1024)
def _gpu_chain(computation: Dataflow, gpu: Hardware) -> Chain:
    """The chain of a computation; ValueError if it has no kernel on a GPU, or one that is slower than separate kernels."""
    graph = GpuChainGraph(computation, gpu)
    if graph.fastest > (apart := APART * least_apart(graph.chain, gpu)):
        raise ValueError(f"{computation} on {gpu.name}: {graph.fastest:g} s, expected less than {apart:g} s of separate kernels")
    return graph.chain
