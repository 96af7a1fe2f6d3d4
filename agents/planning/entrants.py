"""Agents of the track `plans` of suite v1.2: `python -m experiments submit --agent agents.planning.entrants:beam --name beam`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from agents.planning import searches
from agents.planning.local import descended
from agents.planning.searches import Search, Spent, Walker
from gensor_gym.measure.session import BudgetSpent
from gensor_gym.networks.fusion import fine as rule
from gensor_gym.networks.pieces import Piece
from gensor_gym.networks.plan import Plan, cut_all
from gensor_gym.suites.plans import PlanSession


def fine(session: PlanSession, rng: np.random.Generator) -> None:
    """The plan of the rule `fine`."""
    session.measure([rule.fine(session.graph.operator, session.graph.hardware)])


def local(session: PlanSession, rng: np.random.Generator) -> None:
    """The local search from `cut_all`; every plan that it prices is a trial."""
    network = session.graph.operator

    def charged(pieces: Iterable[Piece]) -> float:
        (found,) = session.measure([Plan(network, tuple(pieces))])
        return found.seconds

    descended(cut_all(network), charged)


def _walk(session: PlanSession, rng: np.random.Generator, search: Search) -> None:
    """Search until the decisions are spent, and measure the cheapest plan."""
    walker = Walker(session.graph, session.budget.evaluations or 0)
    with suppress(Spent, BudgetSpent):
        search(walker, rng)
    session.measure([session.graph.plan_of(walker.best)])


def beam(session: PlanSession, rng: np.random.Generator) -> None:
    """The 16 cheapest plans after each decision."""
    _walk(session, rng, searches.beam)


def random(session: PlanSession, rng: np.random.Generator) -> None:
    """Episodes of uniformly drawn decisions."""
    _walk(session, rng, searches.random_plans)


def annealing(session: PlanSession, rng: np.random.Generator) -> None:
    """Simulated annealing from the greedy plan."""
    _walk(session, rng, searches.annealing)
