"""The price of a plan: the sum of its pieces' predicted seconds, each by the program of the constructor `descent`.

A price is the model's latency with its launch and its traffic. Prices are kept in the user's cache, under a hash of the
computation, the machine, the constructor and the sources of this package.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from gensor_gym.cache.sources import sources
from gensor_gym.cache.texts import kept
from gensor_gym.codegen.families import AnySchedule, parsed
from gensor_gym.dataflow.graph import Dataflow
from gensor_gym.hardware.types import Hardware
from gensor_gym.networks.fusion.constructor import NAME, constructed
from gensor_gym.networks.network import Network
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import Plan
from gensor_gym.operators.types import Operator

FOLDER = "prices"


class Prices:
    """Seconds of the pieces of one network on one machine; infinite for a piece that has no kernel there."""

    def __init__(self, network: Network, hardware: Hardware) -> None:
        """Prepare an empty table of prices."""
        self.network, self.hardware = network, hardware
        self._known: dict[tuple[tuple[str, ...], str], float] = {}

    def of(self, piece: Piece) -> float:
        """Return the seconds of a piece with a loop of its own; infinite if no kernel supports it at its anchor."""
        key = piece.nodes, piece.anchor
        if key not in self._known:
            try:
                self._known[key] = program_of(piece.step(self.network).computation, self.hardware)[1]
            except ValueError:
                self._known[key] = math.inf
        return self._known[key]

    def total(self, pieces: Iterable[Piece]) -> float:
        """Return the seconds of all pieces, one after another."""
        return sum(map(self.of, pieces))


def price(plan: Plan, hardware: Hardware) -> float:
    """Predict the seconds of a plan. ValueError for an illegal plan, and for loops of several pieces, which have no model."""
    if shared := [piece for piece in plan.pieces if piece.follows]:
        raise ValueError(f"{shared[0].nodes[0]} follows another piece: expected loops of one piece, which the models know")
    _ = plan.steps
    return Prices(plan.network, hardware).total(plan.pieces)


@lru_cache(maxsize=1 << 14)
def program_of(computation: Operator | Dataflow, hardware: Hardware) -> tuple[AnySchedule, float]:
    """Return (schedule that the search of `constructor` finds, its predicted seconds). Results are cached.

    ValueError if the computation has no kernel.
    """

    def read(text: str) -> tuple[AnySchedule, float]:
        seconds, _, schedule = text.partition(" ")
        return parsed(computation, schedule), float.fromhex(seconds)

    parts = [sources(), NAME, repr(computation), repr(hardware)]
    return kept(FOLDER, parts, read, lambda: constructed(computation, hardware), lambda made: f"{made[1].hex()} {made[0]}")
