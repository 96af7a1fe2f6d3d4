"""Searches of a network's plan by the models: random, greedy, beam, annealing, evolution, and Gensor's traverser.

All take decisions in the graph of `gensor_gym/Fuse-v0` and are charged for each state that they reach, up to a budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from gensor_gym.networks.planning.graph import PlanGraph
from gensor_gym.networks.planning.state import APART, State


@dataclass
class Walker:
    """Takes decisions about a plan up to a budget, and keeps the cheapest plan that it has reached."""

    graph: PlanGraph
    budget: int
    """Number of decisions that may be taken."""
    taken: int = 0
    begun: float = field(init=False)
    spent: float = 0.0
    """Processor seconds of the whole search, set by `walked`."""
    best: State = field(init=False)
    improved: list[tuple[int, float, float]] = field(init=False)
    """(decisions taken, processor seconds of the search, seconds of the cheapest plan) at each improvement."""

    def __post_init__(self) -> None:
        """Begin with one kernel for each node, which costs no decision."""
        self.best = self.graph.first
        self.improved, self.begun = [(0, 0.0, self.best.seconds)], time.process_time()

    def after(self, state: State, action: int) -> State:
        """Return the state after a decision; `Spent` if no decision is left in the budget."""
        if self.taken >= self.budget:
            raise Spent
        self.taken += 1
        found = self.graph.after(state, action)
        if found.seconds < self.best.seconds:
            self.best = found
            self.improved.append((self.taken, time.process_time() - self.begun, found.seconds))
        return found

    def least(self, taken: float = math.inf, within: float = math.inf) -> float:
        """Return the seconds of the cheapest plan reached with `taken` decisions and `within` processor seconds of the search."""
        return next(seconds for count, spent, seconds in reversed(self.improved) if count <= taken and spent <= within)


class Spent(Exception):
    """The budget is spent."""


Search = Callable[[Walker, np.random.Generator], None]


def walked(search: Search, graph: PlanGraph, budget: int, seed: int) -> Walker:
    """Run a search that takes at most `budget` decisions, and return its walker."""
    walker = Walker(graph, budget)
    with suppress(Spent):
        search(walker, np.random.default_rng(seed))
    walker.spent = time.process_time() - walker.begun
    return walker


def searched(search: Search, graph: PlanGraph, budget: int, seed: int) -> State:
    """Run a search that takes at most `budget` decisions, and return the cheapest state that it reaches."""
    return walked(search, graph, budget, seed).best


def ways(state: State) -> list[int]:
    """Return the legal actions except `stop`."""
    return [action for action, legal in enumerate(state.mask) if legal and action]


def gain(state: State, action: int) -> float:
    """Return the seconds of the plan that a decision saves immediately."""
    change = state.changes[action]
    return 0.0 if change is None else -change.seconds


def random_plans(walker: Walker, rng: np.random.Generator) -> None:
    """Run episodes of uniformly drawn decisions, without end."""
    while True:
        _walk(walker, lambda state, found: found[rng.integers(len(found))])


def greedy(walker: Walker, rng: np.random.Generator) -> None:
    """Run one episode in which each decision is the first of those that save the most immediately."""
    _walk(walker, lambda state, found: max(found, key=lambda action: gain(state, action)))


def beam(walker: Walker, rng: np.random.Generator, width: int = 16) -> None:
    """Keep the `width` cheapest plans after each decision."""
    states = [walker.graph.first]
    while states:
        reached = [walker.after(state, action) for state in states for action in ways(state)]
        states = sorted(reached, key=lambda state: state.seconds)[:width]


def traverser(walker: Walker, rng: np.random.Generator, hot: float = 1.0, cold: float = 0.05, episodes: int = 32) -> None:
    """Run episodes like Gensor's: a decision's probability grows with its benefit; the temperature falls between episodes.

    The benefit is the seconds of the pieces that a decision replaces over those of the new piece, 1 for pieces kept apart; the
    probability is proportional to benefit^(1 / temperature).
    """
    number = 0
    while True:
        cooled = min(1.0, number / max(1, episodes - 1))
        temperature = hot * (cold / hot) ** cooled
        _walk(walker, lambda state, found, t=temperature: _drawn(state, found, t, rng))  # type: ignore[misc]
        number += 1


def annealing(walker: Walker, rng: np.random.Generator, hot: float = 0.02, cold: float = 1e-4) -> None:
    """Anneal from the greedy plan: each step changes the decision at one link, and keeps later decisions where they are legal.

    A worse plan is taken with probability exp(-loss / temperature), with the loss in logarithms of seconds.
    """
    kept = dict[int, int]()
    now = _replayed(walker, kept, lambda state, found: max(found, key=lambda action: gain(state, action)))
    while True:
        temperature = hot * (cold / hot) ** (walker.taken / walker.budget)
        link = int(rng.choice(list(kept)))
        changed = {**kept, link: -1}
        found = _replayed(walker, changed, lambda state, found: found[rng.integers(len(found))])
        if rng.random() < math.exp(min(0.0, (math.log(now.seconds) - math.log(found.seconds)) / temperature)):
            now, kept = found, changed


def evolution(walker: Walker, rng: np.random.Generator, population: int = 6, children: int = 4, mutation: float = 0.85) -> None:
    """Evolve plans as Ansor (Zheng et al., OSDI 2020, section 5.1) evolves programs; a gene is the decision at a link.

    Parents are drawn with probabilities proportional to speed. A child is a parent with another decision at one link, with
    probability `mutation` (TVM v0.8), else each of its links is decided as in one of two parents. The best `population` survive.
    """
    plans = [_evolved(walker, {}, rng) for _ in range(population)]
    while True:
        speeds = np.array([1.0 / state.seconds for state, _ in plans])
        born = []
        for _ in range(children):
            one, other = (plans[place][1] for place in rng.choice(len(plans), size=2, p=speeds / speeds.sum()))
            if rng.random() < mutation:
                link = int(rng.choice(list(one)))
                born.append(_evolved(walker, {**one, link: -1}, rng, (link, one[link])))
            else:
                genes = {link: (one if rng.random() < 0.5 else other).get(link, -1) for link in dict.fromkeys((*one, *other))}
                born.append(_evolved(walker, genes, rng))
        plans = sorted([*plans, *born], key=lambda plan: plan[0].seconds)[:population]


def _evolved(
    walker: Walker, genes: dict[int, int], rng: np.random.Generator, but: tuple[int, int] = (-1, -1)
) -> tuple[State, dict[int, int]]:
    """Return (last state of an episode with these genes, the genes). Other decisions are drawn, except `but` (link, decision)."""

    def choose(state: State, found: list[int]) -> int:
        others = [action for action in found if (state.link, action) != but]
        return others[rng.integers(len(others))]

    return _replayed(walker, genes, choose), genes


SEARCHES: Mapping[str, Search] = {
    "random": random_plans, "greedy": greedy, "beam": beam, "annealing": annealing, "evolution": evolution,
    "traverser": traverser,
}  # fmt: skip
"""Name of a search -> its function."""


def _walk(walker: Walker, choose: Callable[[State, list[int]], int]) -> State:
    """Return the last state of an episode. Spent if its first state offers no decision: a search would repeat it for ever."""
    state = walker.graph.first
    if not ways(state):
        raise Spent
    while found := ways(state):
        state = walker.after(state, choose(state, found))
    return state


def _replayed(walker: Walker, decided: dict[int, int], choose: Callable[[State, list[int]], int]) -> State:
    """Return the last state of an episode with the decisions `decided`, and write the decisions taken there: link -> decision.

    `choose` decides at links that are missing or -1; an illegal decision becomes `apart`.
    """

    def follow(state: State, found: list[int]) -> int:
        known = decided.get(state.link)
        if known is None or known < 0:
            known = choose(state, found)
        decided[state.link] = known if known in found else APART
        return decided[state.link]

    return _walk(walker, follow)


def _drawn(state: State, found: list[int], temperature: float, rng: np.random.Generator) -> int:
    logs = np.array([_log_benefit(state, action) for action in found]) / temperature
    chances = np.exp(logs - logs.max())
    return int(rng.choice(found, p=chances / chances.sum()))


def _log_benefit(state: State, action: int) -> float:
    change = state.changes[action]
    if change is None:
        return 0.0
    return math.log(max(change.part.seconds - change.seconds, 1e-12) / max(change.part.seconds, 1e-12))
