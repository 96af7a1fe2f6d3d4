"""A state: a plan, and the link of two nodes at which the next decision is due."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gensor_gym.networks.pieces import Piece

ACTIONS = ("stop", "keep apart", "join", "make a panel", "make a block", "make a block with copies")
"""Decisions at a link from a node to a reader of it.

In order: leave all remaining pieces apart; leave both pieces apart; one kernel for both at the anchor that follows from its host,
or on whole rows of its product; a block of the reader, a second product, and the product before it, without or with copies
before.
"""
STOP, APART, JOIN, PANEL, BLOCK, BLOCK_OF_COPIES = range(len(ACTIONS))
NUM_ACTIONS = len(ACTIONS)
MOST_LINKS = 1024
"""Most links of a network, and length of a row of decisions: the networks of the suite have up to 800."""


@dataclass(frozen=True, eq=False)
class Part:
    """A piece of a state's plan."""

    nodes: int
    """Set of its nodes (`fusion.dependences`)."""
    piece: Piece
    seconds: float


@dataclass(frozen=True, eq=False)
class Change:
    """The effect of a decision: the part that replaces other parts, and the seconds that the plan gains or loses by it."""

    part: Part
    seconds: float


@dataclass(frozen=True, eq=False)
class State:
    """A plan, given by its parts, and the link (a node and a reader of that node) that the next decision is about."""

    part_of: tuple[Part, ...]
    """The part that each node is in."""
    link: int
    """Number of the link. With L links, L + i is the second visit of link i, and 2 L says that no link is left."""
    later: int
    """Set, as bits, of the links at which no change was legal; these links are visited again."""
    seconds: float
    """Seconds of the plan by the models."""
    changes: tuple[Change | None, ...]
    """What each action changes; None for an illegal one. `stop` and `keep apart` change nothing."""

    known: dict[str, Any] = field(default_factory=dict)
    """Cache of facts about the state, such as its features."""

    @cached_property
    def mask(self) -> tuple[bool, ...]:
        """Whether each action is legal: `stop` always, `keep apart` if any of the other actions is."""
        ways = [change is not None for change in self.changes]
        return (True, any(ways), *ways[JOIN:])

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Parts of the plan, in the order of their first nodes."""
        return tuple(dict.fromkeys(self.part_of))
