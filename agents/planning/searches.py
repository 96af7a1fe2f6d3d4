"""Searches of a network's plan by the models: random, greedy, beam, annealing, and Gensor's traverser.

All take decisions in the graph of `gensor_gym/Fuse-v0` and are charged for each state that they reach, up to a budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gensor_gym.networks.planning.graph import PlanGraph
from gensor_gym.networks.planning.state import APART, State


@dataclass
class Walker:
    """Takes decisions up to a budget, and keeps the cheapest plan that it reached."""

    graph: PlanGraph
    budget: int
    """Number of decisions that may be taken."""
    taken: int = 0
    best: State = field(init=False)

    def __post_init__(self) -> None:
        """Begin at a kernel a node, whose price is free."""
        self.best = self.graph.first

    def after(self, state: State, action: int) -> State:
        """The state after a decision; `Spent` if the budget has none left."""
        if self.taken >= self.budget:
            raise Spent
        self.taken += 1
        found = self.graph.after(state, action)
        if found.seconds < self.best.seconds:
            self.best = found
        return found


class Spent(Exception):
    """The budget is spent."""


Search = Callable[[Walker, np.random.Generator], None]


def searched(search: Search, graph: PlanGraph, budget: int, seed: int) -> State:
    """The cheapest state that a search reaches with a budget of decisions."""
    walker = Walker(graph, budget)
    try:
        search(walker, np.random.default_rng(seed))
    except Spent:
        return walker.best
    return walker.best


def ways(state: State) -> list[int]:
    """Legal actions but `stop`; none at the end."""
    return [action for action, legal in enumerate(state.mask) if legal and action]


def gain(state: State, action: int) -> float:
    """Seconds that a decision saves at once."""
    change = state.changes[action]
    return 0.0 if change is None else -change.seconds


def random_plans(walker: Walker, rng: np.random.Generator) -> None:
    """One episode after another of uniformly drawn decisions."""
    while True:
        _walk(walker, lambda state, found: found[rng.integers(len(found))])


def greedy(walker: Walker, rng: np.random.Generator) -> None:
    """One episode in which each decision saves the most at once; the first of equals."""
    _walk(walker, lambda state, found: max(found, key=lambda action: gain(state, action)))


def beam(walker: Walker, rng: np.random.Generator, width: int = 16) -> None:
    """The `width` cheapest plans of as many decisions, decision by decision."""
    states = [walker.graph.first]
    while states:
        reached = [walker.after(state, action) for state in states for action in ways(state)]
        states = sorted(reached, key=lambda state: state.seconds)[:width]


def traverser(walker: Walker, rng: np.random.Generator, hot: float = 1.0, cold: float = 0.05, episodes: int = 32) -> None:
    """Gensor's idea: the benefit of a decision becomes its probability, and the temperature falls from episode to episode.

    The benefit is the seconds of the pieces that a decision replaces over those of its piece, 1 for pieces kept apart; its
    probability is proportional to benefit^(1 / temperature).
    """
    number = 0
    while True:
        cooled = min(1.0, number / max(1, episodes - 1))
        temperature = hot * (cold / hot) ** cooled
        _walk(walker, lambda state, found, t=temperature: _drawn(state, found, t, rng))  # type: ignore[misc]
        number += 1


def annealing(walker: Walker, rng: np.random.Generator, hot: float = 0.02, cold: float = 1e-4) -> None:
    """From the greedy plan, another decision at one link a step; later decisions are kept where they are legal.

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


SEARCHES: Mapping[str, Search] = {
    "random": random_plans, "greedy": greedy, "beam": beam, "annealing": annealing, "traverser": traverser,
}  # fmt: skip
"""Name -> search."""


def _walk(walker: Walker, choose: Callable[[State, list[int]], int]) -> State:
    """The last state of an episode; Spent if the first state offers no decision: such episodes would never end a search."""
    state = walker.graph.first
    if not ways(state):
        raise Spent
    while found := ways(state):
        state = walker.after(state, choose(state, found))
    return state


def _replayed(walker: Walker, decided: dict[int, int], choose: Callable[[State, list[int]], int]) -> State:
    """The end of an episode of the decisions by link; another is chosen where none is known or legal, `apart` where it is not."""

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
    """Logarithm of the seconds of the pieces that a decision replaces over those of its piece."""
    change = state.changes[action]
    if change is None:
        return 0.0
    return math.log(max(change.part.seconds - change.seconds, 1e-12) / max(change.part.seconds, 1e-12))
