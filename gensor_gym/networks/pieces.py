"""A piece of a plan: the nodes that one kernel computes.

The first node, such as a product, determines the kernel's loops. The *anchor* names the loop in which the other nodes are
computed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gensor_gym.chains.chain import chain_of, is_chain
from gensor_gym.chains.panel import panel_of
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.dataflow.joins import check_pitches
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.gir.nest import row_nest
from gensor_gym.networks.network import Network
from gensor_gym.networks.steps import Step, fused_step, step_of

ANCHORS = {
    "tile": "on each finished register tile of a product",
    "row": "on each row, of what is bound by memory",
    "panel": "on whole rows of a product, where a task has finished all columns of them",
    "block": "on each block of rows of a product, which a thread keeps until a second product has added them up",
}
"""Anchor -> the loop of the first node in which the other nodes of a piece are computed."""
_NAMED = ("panel", "block")
"""Anchors that the text of a piece names. The others, tile and row, follow from the first node."""


@lru_cache(maxsize=4096)
def _fault(computation: Dataflow, is_panel: bool) -> str:
    """Return the reason why a fused computation has no kernel; empty if it has one.

    With `is_panel`, it must be a product with maps and reductions of its rows. Cached, because a network has many equal layers.
    """
    try:
        check_pitches(computation)
        (panel_of if is_panel else chain_of if is_chain(computation) else row_nest)(computation)
    except ValueError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Piece:
    """The nodes of one kernel, in an order in which they can be computed.

    `anchor`, a key of `ANCHORS`, is the loop of the first node in which the others are computed.
    """

    nodes: tuple[str, ...]
    anchor: str
    follows: int = 0
    """Number of rows per task if the kernel shares the loop of the previous one (`networks.loops`), else 0."""

    def __str__(self) -> str:
        """Return the piece as one line, which `Piece.parse` reads.

        It has `+ROWS` if the kernel shares the loop of the previous one, with ROWS rows per task; `@ANCHOR` unless the first node
        implies the anchor; and the names of the nodes.
        """
        follows = (f"+{self.follows}",) if self.follows else ()
        return " ".join((*follows, *((f"@{self.anchor}",) if self.anchor in _NAMED else ()), *self.nodes))

    @classmethod
    def parse(cls, network: Network, text: str) -> Piece:
        """Read a piece from a line; ValueError for an unknown node or anchor, or an invalid number of rows."""
        words = text.split()
        follows = _follows(words.pop(0)) if words[0].startswith("+") else 0
        anchor = words.pop(0)[1:] if words and words[0].startswith("@") else ""
        if anchor and anchor not in ANCHORS:
            raise ValueError(f"anchor {anchor!r}: expected one of {', '.join(ANCHORS)}")
        if unknown := [name for name in words if name not in network.nodes]:
            raise ValueError(f"a plan of {network.graph.name} names {unknown[0]!r}: expected names of its nodes")
        if not words:
            raise ValueError(f"a plan of {network.graph.name} has a piece of no nodes: {text!r}")
        return cls(tuple(words), anchor or implied(network, words), follows)

    def step(self, network: Network) -> Step:
        """Return the computation of the piece's kernel, cached in the network.

        ValueError if no kernel computes the piece's nodes in the loop `anchor`.
        """
        key = self.nodes, self.anchor
        if key not in network.known:
            network.known[key] = self._step(network)
        step: Step = network.known[key]
        return step

    def _step(self, network: Network) -> Step:
        products = [name for name in self.nodes if isinstance(network.nodes[name], Contract)]
        if (self.anchor == "block") != (len(products) > 1):
            raise ValueError(
                f"{self.nodes[0]} at anchor {self.anchor!r}: {len(products)} products, of which block has two and others one: "
                "expected what is over in another piece"
            )
        step = (fused_step if self.anchor == "panel" else step_of)(network, self.nodes)
        if self.anchor == "panel":
            assert isinstance(step.computation, Dataflow)
        if isinstance(step.computation, Dataflow) and (fault := _fault(step.computation, self.anchor == "panel")):
            raise ValueError(fault)
        if self.anchor == "panel":
            return step
        if self.anchor != "block" and self.anchor != implied(network, self.nodes):
            raise ValueError(f"{self.nodes[0]} at anchor {self.anchor!r}: expected {implied(network, self.nodes)!r}")
        return step


def _follows(word: str) -> int:
    """Read a piece's number of rows per task from a word such as `+64`. ValueError for other words."""
    rows = int(word[1:]) if re.fullmatch(r"\+\d{1,9}", word) else 0
    if rows < 1:
        raise ValueError(f"a piece follows by {word!r}: expected + and a number of rows from 1 on")
    return rows


def implied(network: Network, nodes: Sequence[str]) -> str:
    """Return the anchor (the loop that computes all nodes but the first): `tile` if the first is a product, else `row`."""
    return "tile" if isinstance(network.nodes[nodes[0]], Contract) else "row"


def piece_of(network: Network, nodes: Sequence[str]) -> Piece:
    """Make a piece of `nodes`. Its anchor follows from the first node."""
    return Piece(tuple(nodes), implied(network, nodes))
