"""Local search of a plan: take the best of all single decisions (`networks.fusion.decisions`), until none saves time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gensor_gym.networks.fusion.decisions import decisions
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import Plan


def descended(plan: Plan, total: Callable[[Iterable[Piece]], float], most: int = 1 << 12) -> tuple[Plan, int]:
    """Return (a plan that no decision without shared loops makes cheaper, number of plans priced); price at most `most` plans.

    `total` returns the seconds of a plan's pieces (`Prices.total`).
    """
    priced, seconds = 0, total(plan.pieces)
    while True:
        best = plan
        for _, changed in decisions(plan):
            if any(piece.follows for piece in changed.pieces):
                continue
            priced += 1
            found = total(changed.pieces)
            if found < seconds * (1 - 1e-12):
                best, seconds = changed, found
            if priced >= most:
                return best, priced
        if best is plan:
            return plan, priced
        plan = best
