"""The graph of decisions about the plan of one network. The first plan has a kernel for each node; a cursor visits the links.

A *link* is a pair of nodes; the second node reads the first. Links are visited in the order of their readers in the network's
graph, and links of one reader from its latest source to its first, so that the plan of all earlier nodes is decided. The cursor
passes over a link inside a piece. A link where no decision is legal is visited again after all links: slices, for example,
become one piece only together with the concatenation that reads them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gensor_gym.cost.roofline import roofline_floor
from gensor_gym.dataflow.nodes import Contract
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.fusion.best import SECONDS, Optimum, optimum
from gensor_gym.networks.fusion.blocks import block_of
from gensor_gym.networks.fusion.candidates import TooMany
from gensor_gym.networks.fusion.dependences import Dependences, places
from gensor_gym.networks.fusion.prices import Prices
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import Plan, ordered
from gensor_gym.networks.planning.state import (
    APART,
    BLOCK,
    JOIN,
    MOST_LINKS,
    NUM_ACTIONS,
    PANEL,
    STOP,
    Change,
    Part,
    State,
)

_MOST_MET = 1 << 13
"""Number of states that a graph keeps."""


class PlanGraph:
    """Decisions about the plan of the network `operator` for `hardware`. A row int32 [MOST_LINKS] of decisions is a state."""

    space = "plans"
    meter: Callable[[int], None] | None = None
    """Function that charges a session for decisions; it is called before each."""

    def __init__(self, network: Network, hardware: Hardware) -> None:
        """Price the plan that has a kernel for each node. ValueError if a node has no such kernel, or for too many links."""
        self.operator, self.hardware = network, hardware
        self.of, self.prices = Dependences(network), Prices(network, hardware)
        self.links = [(one, reader) for reader, some in enumerate(self.of.reads) for one in reversed(places(some))]
        if len(self.links) > MOST_LINKS:
            raise ValueError(f"{network} has {len(self.links)} links between nodes, expected at most {MOST_LINKS}")
        alone = [self._part(1 << node, self.of.piece(1 << node)) for node in range(len(self.of.names))]
        if missing := [part.piece.nodes[0] for part in alone if part.seconds == math.inf]:
            raise ValueError(f"{network} on {hardware.name}: {missing[0]} has no kernel of its own")
        self._joined: dict[tuple[int, int, str, int, str], list[tuple[int, Part]]] = {}
        """(reader, nodes and anchor of the source's piece, and of the reader's) -> (action, part with a kernel) for each way."""
        self._met: dict[bytes, State] = {}
        self.first = self._arrived(tuple(alone), 0, 0, sum(part.seconds for part in alone))
        self.known: dict[str, Any] = {}
        """Cache of facts about the network, such as features of its nodes."""

    @property
    def horizon(self) -> int:
        """Number of steps of an episode: a decision for each link, and `stop`."""
        return len(self.links) + 1

    @cached_property
    def floor(self) -> float:
        """Lower bound in seconds on the time of any plan, from the roofline of the whole network."""
        return roofline_floor(self.operator.graph, self.hardware)

    @cached_property
    def best(self) -> Optimum | None:
        """The cheapest plan with its proof; None if the network is too large for a proof, or the proof takes over `SECONDS`."""
        try:
            return optimum(self.operator, self.hardware, self.of, self.prices, SECONDS)
        except TooMany:
            return None

    @property
    def least(self) -> float | None:
        """Seconds of the cheapest plan; None if unknown."""
        return None if self.best is None else self.best.seconds

    def state(self, row: np.ndarray) -> State:
        """Return the state after a row's decisions, which end at the row's first 0. Illegal decisions change nothing."""
        first_stop = int(row.argmin())
        taken = (row[:first_stop] if row[first_stop] == STOP else row).tobytes()
        known = len(taken)
        while known and taken[:known] not in self._met:
            known -= row.itemsize
        state = self._met[taken[:known]] if known else self.first
        for at in range(known // row.itemsize, len(taken) // row.itemsize):
            state = self.after(state, int(row[at]))
            if len(self._met) >= _MOST_MET:
                self._met.clear()
            self._met[taken[: (at + 1) * row.itemsize]] = state
        return state

    def after(self, state: State, action: int) -> State:
        """Return the state after a decision; `state` itself after `stop` or an illegal decision."""
        if action == STOP or not 0 <= action < NUM_ACTIONS or not state.mask[action]:
            return state
        if self.meter is not None:
            self.meter(1)
        change, part_of = state.changes[action], list(state.part_of)
        if change is None:
            return self._arrived(state.part_of, state.link + 1, state.later, state.seconds)
        for node in places(change.part.nodes):
            part_of[node] = change.part
        return self._arrived(tuple(part_of), state.link + 1, state.later, state.seconds + change.seconds)

    def schedule(self, row: np.ndarray) -> Plan:
        """Return the plan after a row's decisions."""
        return self.plan_of(self.state(row))

    def plan_of(self, state: State) -> Plan:
        """Return the plan of a state."""
        plan = ordered(self.operator, [part.piece for part in state.parts])
        assert plan is not None, "no decision makes pieces wait in a circle"
        return plan

    def towards(self, plan: Plan) -> list[int]:
        """Return decisions that lead to `plan`: pieces are joined at a link if both nodes of the link are in one piece of `plan`.

        The resulting plan may differ from `plan` if some part of a piece of `plan` is not a legal piece.
        """
        wanted = {node: piece for piece in plan.pieces for node in piece.nodes}
        state, taken = self.first, list[int]()
        while (link := self.link_of(state)) is not None:
            one, reader = (wanted[self.of.names[node]] for node in link)
            ways = [way for way in range(JOIN, NUM_ACTIONS) if one == reader and self._fits(state.changes[way], one)]
            taken.append(max(ways, key=lambda way: self._likeness(state.changes[way], one), default=APART))
            state = self.after(state, taken[-1])
        return taken

    @staticmethod
    def _fits(change: Change | None, wanted: Piece) -> bool:
        return change is not None and set(change.part.piece.nodes) <= set(wanted.nodes)

    @staticmethod
    def _likeness(change: Change | None, wanted: Piece) -> tuple[bool, int]:
        assert change is not None
        return change.part.piece.anchor == wanted.anchor, len(change.part.piece.nodes)

    def _part(self, nodes: int, piece: Piece) -> Part:
        return Part(nodes, piece, self.prices.of(piece))

    def link_of(self, state: State) -> tuple[int, int] | None:
        """Return the link (node, reader of the node) that the next decision is about; None if no link is left."""
        return self.links[state.link % len(self.links)] if state.link < 2 * len(self.links) else None

    def _arrived(self, part_of: tuple[Part, ...], link: int, later: int, seconds: float) -> State:
        """Return the state at the next link that an action can change, from `link` on; `link` and `later` are as in `State`."""
        count = len(self.links)
        for number in range(link, 2 * count):
            one, reader = self.links[number % count]
            if part_of[one] is part_of[reader] or (number >= count and not later >> number - count & 1):
                continue
            changes = self._changes(part_of, one, reader)
            if any(changes):
                return State(part_of, number, later, seconds, changes)
            later |= 1 << number % count
        return State(part_of, 2 * count, later, seconds, (None,) * NUM_ACTIONS)

    def _changes(self, part_of: tuple[Part, ...], one: int, reader: int) -> tuple[Change | None, ...]:
        """Return the change that each action makes at the link from node `one` to `reader`; None for an illegal action."""
        found: list[Change | None] = [None] * NUM_ACTIONS
        for action, part in self._ways(part_of[one], part_of[reader], reader):
            replaced = dict.fromkeys(part_of[node] for node in places(part.nodes))
            whole = not any(old.nodes & ~part.nodes for old in replaced)
            if whole and self._can_run(part_of, part.nodes, reader):
                found[action] = Change(part, part.seconds - sum(old.seconds for old in replaced))
        return tuple(found)

    def _ways(self, first: Part, second: Part, reader: int) -> list[tuple[int, Part]]:
        """Return (action, part that it makes) for each action at a link to `reader` whose part has a kernel; cached."""
        key = reader, first.nodes, first.piece.anchor, second.nodes, second.piece.anchor
        if key not in self._joined:
            both = first.nodes | second.nodes
            ways: list[tuple[int, Piece]] = []
            if {first.piece.anchor, second.piece.anchor} <= {"tile", "row"}:
                ways.append((JOIN, self.of.piece(both)))
            hosts = both & self.of.products
            if hosts and hosts & (hosts - 1) == 0:
                ways.append((PANEL, self.of.piece(both, "panel")))
            parts = ((action, self._part(self.of.bits(piece.nodes), piece)) for action, piece in (*ways, *self._blocks(reader)))
            self._joined[key] = [(action, part) for action, part in parts if part.seconds < math.inf]
        return self._joined[key]

    def _blocks(self, reader: int) -> Iterator[tuple[int, Piece]]:
        """Yield (action, block) for blocks whose second product is `reader`; a block with copies only if it contains copies."""
        name = self.of.names[reader]
        if isinstance(self.operator.nodes[name], Contract):
            found = [block_of(self.operator, name, copies) for copies in (False, True)]
            for action, block in enumerate(found if found[0] != found[1] else found[:1], BLOCK):
                if block is not None:
                    yield action, block

    def _can_run(self, part_of: Sequence[Part], nodes: int, reader: int) -> bool:
        """Return whether the set `nodes` can be one part: no path through other parts leads from the set back to it.

        Parts after the node `reader` are not searched: they are single nodes, or moves after a block that read only the block.
        """
        near = (1 << reader + 1) - 1
        reached, waiting = nodes, self.of.readers_of(nodes) & ~nodes & near
        while waiting:
            some = part_of[places(waiting)[0]].nodes
            later = self.of.readers_of(some)
            if later & nodes:
                return False
            reached |= some
            waiting = (waiting | later) & ~reached & near
        return True
